// The floor of value: retention acts where it can free enough to be of use to anybody, or where memory is
// short. Below that, letting regions go costs time for nothing. What it can free is at most what the process
// has had in use at a time. Once reached, it stays so.
//
// One for all domains of a process; the helper's thread (or the simulator's).
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/options.h"

namespace pinion {

class MinimumGain {
 public:
  /// kAutoSize: this share of the limit in force, or of the machine's memory without one; at least so much.
  static constexpr double kAutoShare = 0.01;
  static constexpr std::uint64_t kAutoLeast = std::uint64_t{16} << 20;

  struct Settings {
    std::uint64_t bytes = 0;    ///< 0: any gain will do
    std::uint64_t machine = 0;  ///< bytes of memory that the node has; 0: unknown
  };
  explicit MinimumGain(Settings settings) : settings_(settings) {}

  /// Leave-pinned would hold so much, within a limit of `limit` bytes (UINT64_MAX: none). A page of it takes
  /// so many translation entries (0 to 1).
  void see(std::uint64_t leave_pinned_bytes, std::uint64_t limit, double entries_a_page) {
    reached_ = reached_ || leave_pinned_bytes >= in_force(limit, entries_a_page);
  }
  /// Memory is short, or a limit binds: any gain will do.
  void see_shortage() { reached_ = true; }

  bool reached() const { return reached_; }
  /// Where registrations are cheap, less is worth the trouble.
  std::uint64_t in_force(std::uint64_t limit, double entries_a_page) const {
    if (settings_.bytes != kAutoSize) return settings_.bytes;
    const std::uint64_t machine = settings_.machine, all = machine == 0 ? 0 : std::min(limit, machine);
    return std::max(kAutoLeast, static_cast<std::uint64_t>(kAutoShare * std::min(1.0, entries_a_page) *
                                                           static_cast<double>(all)));
  }

 private:
  const Settings settings_;
  bool reached_ = settings_.bytes == 0;
};

}  // namespace pinion
