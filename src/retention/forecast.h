// The next uses of buffers: the predictor's answers, on the program's own time, as times of the run. Owns
// what threads had waited for registrations, by which the two differ; an interval that a late transfer has
// prolonged would announce the next uses too late, and so make the next late transfer. One thread,
// retention's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "predict/predictor.h"
#include "retention/buffer_table.h"
#include "retention/ledger.h"

namespace pinion {

class Forecast {
 public:
  /// All outlive it.
  Forecast(Predictor& predictor, const BufferTable& buffers, const Ledger& ledger)
      : predictor_(predictor), buffers_(buffers), ledger_(ledger) {}

  /// Returns how long the thread had waited before its call. All ranges of a call count from its beginning: a
  /// wait for one of them comes after the next one's beginning.
  Duration delayed_before(std::uint16_t thread, Time call, Duration delayed);
  /// Learns from a use, whose times are the program's own. Returns times of the run.
  Observed learn(const Use& use);
  /// Uses learnt so far: predictions change only with it.
  std::uint64_t learnt() const { return learnt_; }

  /// Returns the time of the buffer's earliest predicted use later than `after`.
  Time next_time(BufferId id, Time after) const {
    const Duration delay = delay_of(buffers_[id]);
    return delayed_by(predictor_.next_use(id, after - delay), delay);
  }
  /// Returns that use with its sureness. Good until it is asked for again.
  const Estimate& next_use(BufferId id, Time after) const;
  /// Returns the use of the region's buffer that has to be ready first, by the margins as they were last;
  /// `time` is the earliest of all.
  Estimate earliest_use(Range region, Time after) const;
  /// Returns the earliest time of all. `known`: that of buffer `id`, one of them.
  Time earliest_time(Range region, Time after, BufferId id, Time known) const;

 private:
  /// A predictor's time as the run's: its thread has waited so long for registrations before.
  static Time delayed_by(Time predicted, Duration delay) {
    return predicted == kNever ? kNever : predicted + delay;
  }
  Duration delay_of(const Buffer& buffer) const { return threads_[buffer.thread].delayed; }

  struct Thread {
    Time call = kNotYet;   ///< the last one's beginning
    Duration delayed = 0;  ///< how long registration had held it up by then
  };

  Predictor& predictor_;
  const BufferTable& buffers_;
  const Ledger& ledger_;
  std::vector<Thread> threads_ = std::vector<Thread>(1);  ///< a fresh buffer's thread is the first
  std::uint64_t learnt_ = 0;
};

}  // namespace pinion
