// userfaultfd alone. A user that names it vouches for the changes that the kernel does not report (or
// brackets them): those rows of the self-test may fail.
#include <algorithm>
#include <cstring>

#include "monitor/monitors.h"
#include "monitor/userfault.h"

namespace pinion {

namespace {

class UserfaultMonitor final : public MemoryMonitor {
 public:
  const char* name() const override { return "userfaultfd"; }
  std::vector<const char*> blind_spots() const override {
    return {"mprotect",
            "shmdt, and shmat or remap_file_pages over a mapping",
            "MADV_GUARD_INSTALL",
            "files truncated or punched under a mapping",
            "userfaultfd's moves",
            "an address that is mapped anew by a second thread, and acquired, before the event of the first "
            "thread's unmapping has been read (microseconds)"};
  }
  HookReport start(const HookCallbacks& callbacks) override {
    HookReport report = complete_report();
    report.error = start_userfaultfd(callbacks);
    report.complete = !report.error;
    report.rows.push_back({"userfaultfd", report.error ? HookState::failed : HookState::good, report.error});
    return report;
  }
  void stop() override { stop_userfaultfd(); }
  HookReport self_test() override {
    HookReport report = test_memory_events(watch_by_userfaultfd);
    for (HookStatus& row : report.rows) {
      if (row.state == HookState::failed && is_unreported(row.name))
        row = {row.name, HookState::unclaimed, Error::make(ENOTSUP, "the kernel does not report it")};
    }
    return summarize(std::move(report.rows));
  }
  HookReport repair() override {
    const Error way = userfaultfd_gave_way();
    return summarize({{"userfaultfd", way ? HookState::failed : HookState::good, way}});
  }
  Error watch(Range pages) override { return watch_by_userfaultfd(pages); }

 private:
  static bool is_unreported(const char* row) {
    static constexpr const char* kUnreported[] = {"mprotect that takes rights", "shmdt",
                                                  "shmat over a mapping"};
    return std::any_of(std::begin(kUnreported), std::end(kUnreported),
                       [row](const char* name) { return std::strcmp(name, row) == 0; });
  }
};

}  // namespace

MemoryMonitor& userfaultfd_monitor() {
  static UserfaultMonitor monitor;
  return monitor;
}

}  // namespace pinion
