// How many threads work on a preparation, and how many are wanted. The caller that starts it belongs to the
// crew until all are launched, so that none of them is the last before; it does no work, and so it counts as
// none of those wanted. Owns the counts alone; guarded by the preparation's mutex.
#pragma once

namespace pinion {

class PreparationCrew {
 public:
  /// Counts a thread that is about to be made.
  void join() { ++working_; }
  /// True: fewer are wanted, and the calling thread is out of the crew. Others go on.
  bool leaves() {
    if (working_ <= wanted_) return false;
    --working_;
    return true;
  }
  /// Sets the number that is wanted. Returns how many are missing: none while the caller launches its own.
  unsigned want(unsigned threads) {
    wanted_ = threads;
    return launched_ && threads > working_ ? threads - working_ : 0;
  }

  /// Ends the work of a thread. True: it is the last of the crew.
  bool end() { return --working_ == 0 && launched_; }
  /// Ends the part of the caller that started the preparation. True: it is the last of the crew.
  bool end_launch() {
    launched_ = true;
    return working_ == 0;
  }

 private:
  unsigned working_ = 0, wanted_ = ~0U;
  bool launched_ = false;
};

}  // namespace pinion
