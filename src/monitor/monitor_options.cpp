#include "monitor/monitor_options.h"

#include <cerrno>
#include <iterator>

namespace pinion {

namespace {

constexpr const char* kNames[] = {
    "auto", "libc", "libc+userfaultfd", "symbols", "symbols+userfaultfd", "userfaultfd", "brackets"};
constexpr Choice<MonitorKind> kForUsers[] = {{"auto", MonitorKind::automatic},
                                             {"libc", MonitorKind::libc},
                                             {"userfaultfd", MonitorKind::userfaultfd},
                                             {"brackets", MonitorKind::brackets}};
constexpr Choice<bool> kYesNo[] = {{"yes", true}, {"no", false}};

}  // namespace

OptionTable<MonitorOptions> monitor_options() {
  using O = MonitorOptions;
  return {
      choice_option(&O::monitor,
                    {"monitor", "how Pinion notices unmapped and changed memory (see `pinion doctor`)"},
                    kForUsers),
      switch_option(
          &O::feed_libfabric,
          {"feed-libfabric",
           "act as the memory monitor of libfabric's own registration cache, in programs that use it",
           Listing::advanced},
          kYesNo),
      switch_option(&O::keep_shared_files,
                    {"keep-shared-files",
                     "keep registrations of mapped files that other users can write to, and so cut unseen",
                     Listing::advanced},
                    kYesNo),
  };
}

const char* to_string(MonitorKind kind) { return kNames[static_cast<int>(kind)]; }

Error find_monitor(std::string_view name, MonitorKind& kind) {
  std::string names;
  for (std::size_t i = 0; i < std::size(kNames); ++i) {
    names += (names.empty() ? "" : ", ") + std::string(kNames[i]);
    if (name != kNames[i]) continue;
    kind = static_cast<MonitorKind>(i);
    return {};
  }
  return Error::make(EINVAL, "monitor: '%s' is not one of: %s", std::string(name.substr(0, 80)).c_str(),
                     names.c_str());
}

}  // namespace pinion
