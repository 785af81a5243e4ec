#include "retention/forecast.h"

namespace pinion {

Duration Forecast::delayed_before(std::uint16_t thread, Time call, Duration delayed) {
  if (thread >= threads_.size()) threads_.resize(thread + std::size_t{1});
  Thread& last = threads_[thread];
  if (call == last.call) return std::min(delayed, last.delayed);
  last.call = call;
  last.delayed = delayed;
  return delayed;
}

Observed Forecast::learn(const Use& use) {
  ++learnt_;
  Observed observed = predictor_.observe(use);
  observed.foreseen = delayed_by(observed.foreseen, use.delayed);
  observed.next = delayed_by(observed.next, use.delayed);
  return observed;
}

const Estimate& Forecast::next_use(BufferId id, Time after) const {
  const Buffer& buffer = buffers_[id];
  const Duration worth = ledger_.worth(buffer);
  KnownUse& known = buffer.known_use;
  const bool same = after == known.after || (after > known.after && after < known.next.until);
  if (same && known.learnt == learnt_ && known.worth == worth) return known.next;
  const Duration delay = delay_of(buffer);
  known = {learnt_, after, worth, predictor_.estimate(id, after - delay, worth)};
  Estimate& next = known.next;
  next.time = delayed_by(next.time, delay);
  next.early = delayed_by(next.early, delay);
  next.until = delayed_by(next.until, delay);
  return next;
}

Estimate Forecast::earliest_use(Range region, Time after) const {
  const std::vector<BufferId>& buffers = buffers_.in(region);
  if (buffers.size() == 1) return next_use(buffers.front(), after);
  BufferId first = 0;
  Time earliest = kNever, early = kNever;
  for (const BufferId id : buffers) {
    const Time next = next_time(id, after);
    if (next == kNever) continue;
    earliest = std::min(earliest, next);
    if (next - buffers_[id].expected.margin >= early) continue;
    early = next - buffers_[id].expected.margin;
    first = id;
  }
  if (earliest == kNever) return {};
  Estimate estimate = next_use(first, after);
  estimate.time = earliest;
  return estimate;
}

Time Forecast::earliest_time(Range region, Time after, BufferId id, Time known) const {
  Time earliest = kNever;
  for (const BufferId other : buffers_.in(region))
    earliest = std::min(earliest, other == id ? known : next_time(other, after));
  return earliest;
}

}  // namespace pinion
