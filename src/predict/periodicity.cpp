#include "predict/periodicity.h"

#include <algorithm>

#include "predict/context.h"

namespace pinion {

unsigned PeriodicityPredictor::period_of(const Stream& stream) const {
  for (unsigned m = 1; m <= kLongestPeriod; ++m) {
    if (stream.equal[m] >= window_) return m;
  }
  return 0;
}

unsigned PeriodicityPredictor::period(std::uint16_t thread) const {
  return thread < streams_.size() ? period_of(streams_[thread]) : 0;
}

Observed PeriodicityPredictor::observe(const Use& use) {
  if (use.thread >= streams_.size()) streams_.resize(use.thread + std::size_t{1});
  if (use.buffer >= buffers_.size()) buffers_.resize(use.buffer + std::size_t{1});
  Stream& stream = streams_[use.thread];
  Buffer& buffer = buffers_[use.buffer];
  const Time foreseen = next_use(use.buffer, use.last);
  const std::uint64_t value = mix(mix(mix(1, use.site), use.buffer), buffer.incarnation);
  stream.points[stream.count++ % stream.points.size()] = {value, use.buffer, use.time};
  const unsigned lags = static_cast<unsigned>(std::min<std::uint64_t>(kLongestPeriod, stream.count - 1));
  for (unsigned m = 1; m <= lags; ++m)
    stream.equal[m] = stream.back(0).value == stream.back(m).value ? stream.equal[m] + 1 : 0;

  buffer.next = kNever;
  const unsigned m = period_of(stream);
  // x[n - m] was this point; the points after it, up to x[n], will follow again.
  for (unsigned j = 1; j <= m; ++j) {
    if (stream.back(m - j).buffer != use.buffer) continue;
    buffer.next = use.time + (stream.back(m - j).time - stream.back(m).time);
    break;
  }
  return {foreseen, next_use(use.buffer, use.time)};
}

Time PeriodicityPredictor::next_use(BufferId buffer, Time after) const {
  if (buffer >= buffers_.size() || buffers_[buffer].next <= after) return kNever;
  return buffers_[buffer].next;
}

void PeriodicityPredictor::forget(BufferId buffer) {
  if (buffer >= buffers_.size()) return;
  buffers_[buffer].next = kNever;
  ++buffers_[buffer].incarnation;
}

}  // namespace pinion
