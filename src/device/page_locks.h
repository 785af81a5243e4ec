// Pages locked by mlock(), each counted: mlock itself does not count, so of two overlapping locks one
// munlock() would undo both. Owns the counts; any thread. A mutex guards them and every munlock(), so that no
// page is unlocked that another thread has just counted; mlock() calls, which may fault for long, are made
// outside of it. Locks that the program takes on the same pages by itself are not seen, and end with the last
// of ours.
#pragma once

#include <mutex>

#include "base/coverage.h"
#include "base/range.h"

namespace pinion {

class PageLocks {
 public:
  /// Locks whole pages. Returns 0 or mlock()'s errno; then nothing of this call stays locked.
  int lock(Range pages);
  /// Undoes one lock(); pages unmapped meanwhile are no harm.
  void unlock(Range pages);

 private:
  std::mutex mutex_;  ///< guards counts_
  Coverage counts_;
};

}  // namespace pinion
