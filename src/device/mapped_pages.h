// The larger pages around a range that is about to be registered: in a hugetlb mapping (MAP_HUGETLB,
// hugetlbfs, SHM_HUGETLB, the pool of the hugepage heap) the hugepage is what the kernel pins and unmaps.
// Transparent hugepages are none of it: the kernel makes and splits them as it pleases, so they are no
// property of the mapping.
//
// Owns a file of /proc, kept open. Any thread, outside of hooks. A question costs a reading of the clock
// where the machine has no pool of hugepages. Where it has one: a system call since Linux 6.11, and before
// that a walk through /proc/self/maps.
#pragma once

#include <sys/types.h>

#include <atomic>

#include "base/clock.h"
#include "base/kept_file.h"
#include "base/large_pages.h"

namespace pinion {

/// The mapping at an address, by the kernel's answer about the open file (/proc/.../maps). False: there is
/// none, or the kernel is older than Linux 6.11.
bool ask_for_mapping(int maps, Address at, PagedMemory& mapping);
/// The same by the text of the calling thread's maps, on any kernel.
bool read_mapping(Address at, PagedMemory& mapping);

class MappedPages {
 public:
  /// The request in whole pages of its mapping; empty where these are of the system's size, or unknown.
  LargeRange around(Range request);

  /// The pool may have changed: for tests, which change it. Otherwise a change is seen within kLook.
  void look_again() { look_at_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr Duration kLook = 100 * kMillisecond;
  /// A process and its mappings; a forked child needs a file of its own.
  struct Maps {
    pid_t process;
    KeptFile file;
  };

  bool machine_has_any();
  const Maps* maps();

  std::atomic<Time> look_at_{0};
  std::atomic<bool> has_any_{false};
  std::atomic<Maps*> maps_{nullptr};
};

/// Of this process. Never destroyed: threads may be inside when it ends.
MappedPages& mapped_pages();

}  // namespace pinion
