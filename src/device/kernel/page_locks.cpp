#include "device/kernel/page_locks.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "device/kernel/fault_in.h"

namespace pinion {

namespace {

/// Raw system calls, because the sanitizers make the library's mlock() and munlock() empty.
bool lock_step(Range range) { return syscall(SYS_mlock, range.begin, range.bytes()) == 0; }
bool unlock_step(Range range) { return syscall(SYS_munlock, range.begin, range.bytes()) == 0; }
/// For these flags the kernel only looks for holes, and for locks, which it reports first.
bool is_mapped(Range range) { return syscall(SYS_msync, range.begin, range.bytes(), MS_ASYNC) == 0; }
bool any_locked(Range range) {
  return syscall(SYS_msync, range.begin, range.bytes(), MS_ASYNC | MS_INVALIDATE) != 0 && errno == EBUSY;
}

/// The two halves of a range of several pages.
std::pair<Range, Range> halves(Range range) {
  const Address middle = page_floor(range.begin + range.bytes() / 2);
  return {{range.begin, middle}, {middle, range.end}};
}

/// munlock() stops at the first unmapped page: go around it. Another failure (too many mappings) is returned.
int munlock_mapped(Range range) {
  if (unlock_step(range)) return 0;
  const int error = errno;
  if (range.pages() == 1) return is_mapped(range) ? error : 0;
  const auto [first, second] = halves(range);
  const int failed = munlock_mapped(first);
  return failed != 0 ? failed : munlock_mapped(second);
}

/// Calls f on parts of `range`, in order of address, that are locked throughout.
template <class F>
void for_each_locked(Range range, F&& f) {
  if (!any_locked(range)) return;
  if (range.pages() == 1) return f(range);
  const auto [first, second] = halves(range);
  for_each_locked(first, f);
  for_each_locked(second, f);
}

/// Calls f on steps of `range` until one fails; returns what it returned.
template <class F>
int in_steps(Range range, F&& f) {
  int error = 0;
  for (Address at = range.begin; at < range.end && error == 0; at += kFaultStep) {
    error = f(Range{at, std::min(at + kFaultStep, range.end)});
  }
  return error;
}

}  // namespace

int PageLocks::lock(Range pages) {
  in_steps(pages, [this](Range step) {
    const MutexLock lock(mutex_);
    std::vector<Range> programs;
    counts_.add(
        step, [&](Range part) { for_each_locked(part, [&](Range locked) { programs.push_back(locked); }); });
    for (const Range locked : programs) programs_.add(locked);
    return 0;
  });
  // All pages, also those counted before: the thread that counted a page first may still be about to lock it.
  const int error = in_steps(pages, [](Range step) { return lock_step(step) ? 0 : errno; });
  if (error != 0) static_cast<void>(unlock(pages));
  return error;
}

int PageLocks::unlock(Range pages) {
  const MutexLock lock(mutex_);
  std::vector<Range> uncovered;
  counts_.remove(pages, [&](Range part) { uncovered.push_back(part); });
  int error = 0;
  for (const Range part : uncovered) {
    programs_.for_each_uncovered(part, [&](Range ours) {
      if (error == 0) error = in_steps(ours, munlock_mapped);
    });
  }
  if (error != 0) {
    counts_.add(pages);
    return error;
  }
  for (const Range part : uncovered) programs_.erase(part);
  return 0;
}

}  // namespace pinion
