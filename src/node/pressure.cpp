#include "node/pressure.h"

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/own_files.h"

namespace pinion::node {

namespace {

/// Shortage begins at the first and ends below the second.
struct Clear {
  double begins, ends;
  bool holds(double value, bool before) const { return value >= (before ? ends : begins); }
};

// systemd takes a tenth of the time as pressure, too.
constexpr Clear kStalled{0.10, 0.05};
constexpr Clear kFull{0.95, 0.90};
constexpr Clear kExhausted{1, 0.5};
// A node is short with less than a twentieth of its memory available; of a large one, with less than 4 GiB.
constexpr std::uint64_t kScarcePart = 20, kScarceMost = std::uint64_t{4} << 30;
// Every file takes a descriptor. Deeper hierarchies are bounded near the process.
constexpr std::size_t kMostGroups = 6;

/// A number of bytes; 0: none. Bounds are "max" in version 2, and near 2^63 in version 1, where there is
/// none.
std::uint64_t bytes_in(const KeptText& file) {
  char text[128];
  std::uint64_t bytes = 0;
  if (file.read(text).empty() || std::sscanf(text, "%" SCNu64, &bytes) != 1) return 0;
  return bytes < (std::uint64_t{1} << 60) ? bytes : 0;
}

/// The number behind `name` at the beginning of a line; 0: there is none.
std::uint64_t number_after(const char* text, const char* name) {
  const std::size_t length = std::strlen(name);
  for (const char* line = text; line != nullptr; line = std::strchr(line, '\n')) {
    line += *line == '\n';
    std::uint64_t number = 0;
    if (std::strncmp(line, name, length) == 0 && std::sscanf(line + length, "%" SCNu64, &number) == 1)
      return number;
  }
  return 0;
}

/// The share of "some avg10=1.23 ...".
double stalled_in(const KeptText& file) {
  char text[256];
  unsigned whole = 0, hundredths = 0;  // the decimal point of sscanf is the program's locale's
  if (file.read(text).empty() || std::sscanf(text, "some avg10=%u.%2u", &whole, &hundredths) != 2) return 0;
  return whole / 100. + hundredths / 10000.;
}

double exhausted_in(const KeptText& file) {
  char text[512];
  file.read(text);
  const std::uint64_t total = number_after(text, "MemTotal:"),
                      available = number_after(text, "MemAvailable:");
  if (total == 0) return 0;
  const std::uint64_t scarce = std::min(total / kScarcePart, kScarceMost / 1024);  // KiB
  return static_cast<double>(scarce) / static_cast<double>(std::max<std::uint64_t>(1, available));
}

}  // namespace

bool is_short(const PressureSample& sample, bool before) {
  return kStalled.holds(sample.stalled, before) || kFull.holds(sample.full, before) ||
         kExhausted.holds(sample.exhausted, before);
}

void NodePressure::open() {
  node_stalls_ = KeptText(root_ + "/proc/pressure/memory");
  node_memory_ = KeptText(root_ + "/proc/meminfo");
  groups_.clear();
  for (const MemoryGroup& group : memory_groups(root_)) {
    // The stalls of a group around it are the node's, for the most part.
    if (group.unified && !group_stalls_.is_open())
      group_stalls_ = KeptText(group.directory + "/memory.pressure");
    Group files{KeptText(group.directory + (group.unified ? "/memory.high" : "/memory.soft_limit_in_bytes")),
                KeptText(group.limit_file()),
                KeptText(group.directory + (group.unified ? "/memory.current" : "/memory.usage_in_bytes")),
                KeptText(group.directory + "/memory.stat"), group.unified};
    const bool bounded = bytes_in(files.soft_bound) != 0 || bytes_in(files.bound) != 0;
    if (files.usage.is_open() && (groups_.empty() || bounded)) groups_.push_back(std::move(files));
    if (groups_.size() == kMostGroups) break;
  }
}

double NodePressure::fullness(const Group& group) {
  std::uint64_t bound = bytes_in(group.bound);
  if (const std::uint64_t soft = bytes_in(group.soft_bound); soft != 0 && (bound == 0 || soft < bound))
    bound = soft;
  if (bound == 0) return 0;
  std::uint64_t used = bytes_in(group.usage);
  if (static_cast<double>(used) >= kFull.ends * static_cast<double>(bound)) {
    // Files that are read fill a group to its bound with page cache, which goes as soon as memory is needed.
    char text[4096];
    group.statistics.read(text);
    used -= std::min(used, number_after(text, group.unified ? "inactive_file " : "total_inactive_file "));
  }
  return static_cast<double>(used) / static_cast<double>(bound);
}

PressureSample NodePressure::sample() const {
  PressureSample sample{.stalled = std::max(stalled_in(node_stalls_), stalled_in(group_stalls_)),
                        .exhausted = exhausted_in(node_memory_)};
  for (const Group& group : groups_) sample.full = std::max(sample.full, fullness(group));
  return sample;
}

bool NodePressure::look(Time now) {
  if (looked_ != 0 && now - looked_ < (short_ ? kBetweenLooksWhileShort : kBetweenLooks)) return false;
  looked_ = now;
  PressureSample now_is;
  if (node_memory_.is_lost()) {
    // One thread reads all files, instead of one for each.
    with_own_files([&] {
      NodePressure anew(root_);
      anew.open();
      now_is = anew.sample();
    });
  } else {
    now_is = sample();
  }
  short_ = node::is_short(now_is, short_);
  return true;
}

}  // namespace pinion::node
