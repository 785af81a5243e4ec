// The larger pages around a range that is about to be registered: in a hugetlb mapping (MAP_HUGETLB,
// hugetlbfs, SHM_HUGETLB, the pool of the hugepage heap) the hugepage is what the kernel pins and unmaps.
// Transparent hugepages are none of it: the kernel makes and splits them as it pleases, so they are no
// property of the mapping.
//
// Owns a file of /proc, kept open. Any thread, outside of hooks. A question costs a reading of the clock
// where the machine has no pool of hugepages. Where it has one: a system call since Linux 6.11. Before that
// the process's mappings are read, for at most 2 % of the time, so that a mapping may be known some
// milliseconds late.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/kept_file.h"
#include "base/large_pages.h"
#include "base/process_mutex.h"

namespace pinion {

/// A mapping by the kernel's answer.
struct AnsweredMapping : PagedMemory {
  bool writable = false;
  bool is_shared = false;
  bool of_file = false;  ///< hugetlb memory is a file's too
};

/// The mapping at an address, by the kernel's answer about the open file (/proc/.../maps). False: there is
/// none, or the kernel is older than Linux 6.11.
bool ask_for_mapping(int maps, Address at, AnsweredMapping& mapping);
/// Like the above, but fills in the pages alone.
bool ask_for_mapping(int maps, Address at, PagedMemory& mapping);

/// A mapping of a file, by the kernel's answer or its text.
struct MappedFile {
  Range range;
  bool is_shared = false;
  std::uint64_t device = 0;
  std::uint64_t inode = 0;
  std::string name;  ///< with " (deleted)" behind it where the file has none any more
};

/// Like ask_for_mapping(). False too where no file with a name is mapped there.
bool ask_for_file(int maps, Address at, MappedFile& file);
/// Calls visit(file) for each by the text of the calling thread's maps, on any kernel. False: some may be
/// missing, as the kernel has refused the text.
bool for_each_mapped_file(const std::function<void(const MappedFile&)>& visit);

/// All mappings of larger pages, by the text of the calling thread's maps, on any kernel.
LargePages read_large_mappings();

/// Keeps what a reading of the text found for 50 times as long as reading took: 2 % of the time go into it.
template <class Found>
class LastReading {
 public:
  template <class Read>
  const Found& found(Read&& read) {
    constexpr int kRest = 50;
    const Time now = monotonic_now();
    if (now < read_again_) return found_;
    found_ = read();
    const Time end = monotonic_now();
    read_again_ = end + kRest * (end - now);
    return found_;
  }

 private:
  Found found_{};
  Time read_again_ = 0;
};

class MappedPages {
 public:
  /// `allows_questions`: false for tests of older kernels' way.
  explicit MappedPages(bool allows_questions = true) : allows_questions_(allows_questions) {}
  ~MappedPages() { delete maps_.load(); }
  MappedPages(const MappedPages&) = delete;
  MappedPages& operator=(const MappedPages&) = delete;

  /// The request in whole pages of its mapping; empty where these are of the system's size, or unknown.
  LargeRange around(Range request);
  /// The file for ask_for_mapping(); -1: the kernel answers no questions.
  int question_file();

  /// The pool may have changed: for tests, which change it. Otherwise a change is seen within kLook.
  void look_again() { look_at_.store(0, std::memory_order_relaxed); }

 private:
  static constexpr Duration kLook = 100 * kMillisecond;
  /// A process and its mappings; a forked child needs its own.
  struct Maps {
    Maps(pid_t of, bool allows_questions);
    LargeRange around_by_text(Range request);

    const pid_t process;
    std::unique_ptr<Maps> parents;  ///< another thread may be comparing its process
    KeptFile file;
    bool answers;  ///< the kernel does
    ProcessMutex mutex;
    LastReading<LargePages> large GUARDED_BY(mutex);
  };

  bool machine_has_any();
  Maps& maps();

  const bool allows_questions_;
  std::atomic<Time> look_at_{0};
  std::atomic<bool> has_any_{false};
  std::atomic<Maps*> maps_{nullptr};
};

/// This process's mapped pages. Never destroyed: threads may be inside when it ends.
MappedPages& mapped_pages();

}  // namespace pinion
