// The charge for transfers whose memory cannot be registered. The layer below makes such a transfer, and
// Pinion cannot redirect it to a bounce buffer. So the time of the copy is charged: going without
// registration is never free.
//
// Owns the measured speed of copies, and whether the user was told. Any thread, outside of hooks.
#pragma once

#include <atomic>

#include "lease/thread_context.h"
#include "registry/budget.h"
#include "retention/record.h"

namespace pinion {

class BounceCharge {
 public:
  /// `spends`: modelled time delays threads (DeviceCapabilities of the first domain's device). Else it is
  /// charged in the books.
  BounceCharge(bool spends, const Budget& budget) : spends_(spends), budget_(budget) {}

  void charge(ThreadContext& thread, Record& transfer, const Error& why);
  bool spends_modelled_time() const { return spends_; }
  /// Bytes per ns; found by the first caller (copy_speed.h).
  double copy_speed();

 private:
  const bool spends_;
  const Budget& budget_;
  std::atomic<double> bytes_per_ns_{0};
  std::atomic<bool> reported_{false};
};

}  // namespace pinion
