// The time that puts and gets take to delivery: by a firehose, by message, and as the rider of a question.
// One that begins before the first answer of its peer waits for the connection, and is not measured. Any
// thread.
#pragma once

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "firehose/bucket.h"
#include "firehose/typical_time.h"

namespace pinion::firehose {

class OperationTimes {
 public:
  explicit OperationTimes(Peer peers) : met_(std::make_unique<std::atomic<bool>[]>(peers)) {}

  /// A message of the peer has come.
  void met(Peer peer) {
    if (!met_[peer].load(std::memory_order_relaxed)) met_[peer].store(true, std::memory_order_relaxed);
  }
  /// The begin of an operation that starts at `now`; 0: it is not measured.
  Ticks begin(Peer peer, Ticks now) const { return met_[peer].load(std::memory_order_relaxed) ? now : 0; }

  TypicalTime held, by_message, riding;

 private:
  const std::unique_ptr<std::atomic<bool>[]> met_;
};

}  // namespace pinion::firehose
