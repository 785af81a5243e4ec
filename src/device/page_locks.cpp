#include "device/page_locks.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "device/fault_in.h"

namespace pinion {

namespace {

/// Raw system calls, because the sanitizers replace the library's mlock() and munlock() by nothing.
bool lock_step(Range range) { return syscall(SYS_mlock, range.begin, range.bytes()) == 0; }
bool unlock_step(Range range) { return syscall(SYS_munlock, range.begin, range.bytes()) == 0; }

/// munlock() stops at the first page that is not mapped: go around it.
void munlock_mapped(Range range) {
  if (unlock_step(range) || range.pages() == 1) return;
  const Address middle = page_floor(range.begin + range.bytes() / 2);
  munlock_mapped({range.begin, middle});
  munlock_mapped({middle, range.end});
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
  {
    const std::lock_guard lock(mutex_);
    counts_.add(pages);
  }
  // All of it, counted before or not: who counted a page first may still be on the way to lock it.
  const int error = in_steps(pages, [](Range step) { return lock_step(step) ? 0 : errno; });
  if (error) unlock(pages);
  return error;
}

void PageLocks::unlock(Range pages) {
  in_steps(pages, [this](Range step) {
    const std::lock_guard lock(mutex_);
    counts_.remove(step, munlock_mapped);
    return 0;
  });
}

}  // namespace pinion
