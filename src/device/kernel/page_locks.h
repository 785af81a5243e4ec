// Pages locked by mlock(), each counted: mlock itself does not count, so of two overlapping locks one
// munlock() would undo both. Pages that the program has locked before are left to it: their locks outlast
// ours. Owns the counts; any thread. A mutex guards them and every munlock(), so that a page that another
// thread has just counted stays locked. mlock() calls, which may fault for long, are made outside of it.
//
// Locks that the program takes or undoes on pages while they are locked here are indistinguishable from ours.
// So its munlock() ends our lock early; transfers are independent of these locks. A lock that it takes
// meanwhile ends with the last of ours.
#pragma once

#include "base/coverage.h"
#include "base/mutex.h"
#include "base/range.h"

namespace pinion {

class PageLocks {
 public:
  /// Locks whole pages. Returns 0 or mlock()'s errno; then all locks of this call are undone.
  int lock(Range pages);
  /// Undoes one lock(); pages unmapped meanwhile are harmless. Returns 0 or munlock()'s errno; then the
  /// lock() counts still.
  int unlock(Range pages);

 private:
  Mutex mutex_;
  Coverage counts_ GUARDED_BY(mutex_);
  Coverage programs_ GUARDED_BY(mutex_);  ///< the pages among them that the program had locked before
};

}  // namespace pinion
