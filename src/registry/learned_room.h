// The memory that the system lets this process register, as refusals show it. A limit such as RLIMIT_MEMLOCK
// is shared with other processes of the user and may change at any time. It counts in its own way (whole
// hugepages, edge pages twice). So only a refusal shows it, and only another try shows that there is room
// again.
//
// After a refusal, totals of that size and larger wait for a while. The while doubles with each refusal, up
// to a second, and is halved when a try succeeds. A pure value; its owner guards it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/error.h"
#include "base/range.h"

namespace pinion {

class LearnedRoom {
 public:
  static constexpr Duration kFirstWait = 10 * kMillisecond, kLastWait = kSecond;

  /// The most that may be registered in all, as far as is known.
  std::uint64_t most() const { return most_; }
  /// The refusal that it was learned from.
  const Error& refusal() const { return refusal_; }

  /// Whether to register `total` bytes. More than is known to fit is tried once each while.
  bool allows(std::uint64_t total, Time now) {
    if (total <= most_) return true;
    if (now < next_try_) return false;
    next_try_ = now + wait_;
    return true;
  }
  /// The system has refused to let `total` bytes be registered.
  void refused(std::uint64_t total, const Error& why, Time now) {
    if (total > most_) {
      wait_ = std::min(2 * wait_, kLastWait);  // a try that failed
    } else {
      most_ = total - std::min<std::uint64_t>(total, page_size());
    }
    refusal_ = why;
    next_try_ = now + wait_;
  }
  /// `total` bytes are registered: more than was known to fit.
  void exceeded() {
    most_ = UINT64_MAX;
    wait_ = std::max(wait_ / 2, kFirstWait);
  }

 private:
  std::uint64_t most_ = UINT64_MAX;
  Time next_try_ = 0;
  Duration wait_ = kFirstWait;
  Error refusal_;
};

}  // namespace pinion
