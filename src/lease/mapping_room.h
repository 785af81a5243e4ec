// How many regions may be registered while each of them may divide a mapping of the program in three: by
// advice (MADV_DONTFORK of a fork-safe libibverbs), by mlock, or by a watch of userfaultfd. The kernel bounds
// the mappings of a process (vm.max_map_count), and the program needs them too: a quarter of what it leaves
// is Pinion's.
//
// Any ordinary thread; one mutex. A look reads the process's mappings, for at most 2 % of the time.
#pragma once

#include <cstdint>

#include "base/mutex.h"
#include "device/kernel/mapped_pages.h"
#include "registry/budget.h"

namespace pinion {

/// The regions that may be registered: of `most` mappings `now` are there, and `held` regions have up to two
/// of them each.
std::uint64_t regions_for_mappings(std::uint64_t most, std::uint64_t now, std::uint64_t held);

class MappingRoom {
 public:
  explicit MappingRoom(Budget& budget) : budget_(budget) {}

  /// Looks at the mappings, and bounds the budget's regions by them.
  void look();
  /// Whether three quarters of all mappings are there already.
  bool is_short();

 private:
  std::uint64_t mappings() REQUIRES(mutex_);

  Budget& budget_;
  Mutex mutex_;
  LastReading<std::uint64_t> mappings_ GUARDED_BY(mutex_);
  std::uint64_t most_ GUARDED_BY(mutex_) = 0;  ///< 0: not read yet
};

}  // namespace pinion
