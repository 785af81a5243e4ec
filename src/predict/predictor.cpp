// The choice of a predictor, and the code of the paper's two (paper_predictors.h).
#include "predict/predictor.h"

#include <algorithm>

#include "predict/adaptive.h"
#include "predict/paper_predictors.h"

namespace pinion {

// ---- the choice ----

Estimate Predictor::estimate(BufferId buffer, Time after, Duration) const {
  const Time next = next_use(buffer, after);
  return {next, next, 0, next == kNever ? 0.0 : 1.0};
}

const std::vector<BufferId>& Predictor::moved() const {
  static const std::vector<BufferId> none;
  return none;
}

std::unique_ptr<Predictor> make_predictor(const std::string& name, unsigned window, unsigned period_window) {
  if (name == "shortest") return std::make_unique<ShortestPredictor>(window);
  if (name == "periodicity") return std::make_unique<PeriodicityPredictor>(period_window);
  if (name == "adaptive") return std::make_unique<AdaptivePredictor>();
  return nullptr;
}

OptionTable<PredictOptions> predict_options() {
  using O = PredictOptions;
  static const Choice<std::string> kPredictors[] = {
      {"adaptive", "adaptive"}, {"shortest", "shortest"}, {"periodicity", "periodicity"}};
  return {
      choice_option(&O::predictor,
                    {"predictor", "how the next use of a region is predicted (retention helper and observe)",
                     Listing::advanced},
                    kPredictors),
      count_option(
          &O::window,
          {"window", "previous communication points in a context signature, 0 to 8", Listing::advanced}, 0,
          8),
      count_option(&O::period_window,
                   {"period-window",
                    "communication points in a row that must repeat to form a period (predictor "
                    "periodicity), 1 to 128",
                    Listing::advanced},
                   1, 128),
      text_option(
          &O::profile,
          {"profile",
           "file with what predictor adaptive learnt in earlier runs, which this run updates; empty: none"}),
  };
}

// ---- the paper's predictor ----

Observed ShortestPredictor::observe(const Use& use) {
  const Time foreseen = next_use(use.buffer, use.last);
  learn(use);
  return {foreseen, next_use(use.buffer, use.time)};
}

void ShortestPredictor::learn(const Use& use) {
  const Signature signature = context_.enter(use);
  auto& contexts = grown(contexts_of_, use.buffer);

  const auto [at, is_new] = entries_.try_emplace(signature, Entry{use.time, 0});
  if (is_new) {
    if (contexts.size() == kContextsPerBuffer) {
      const auto oldest = std::min_element(contexts.begin(), contexts.end(), [&](Signature a, Signature b) {
        return entries_.at(a).last < entries_.at(b).last;
      });
      entries_.erase(*oldest);
      contexts.erase(oldest);
    }
    contexts.push_back(signature);
    return;
  }
  Entry& entry = at->second;
  const Duration interval = use.time - entry.last;
  if (interval <= 0) return;
  if (entry.period == 0 || interval < entry.period) entry.period = interval;
  entry.last = use.time;
}

Time ShortestPredictor::next_use(BufferId buffer, Time after) const {
  Time earliest = kNever;
  if (buffer >= contexts_of_.size()) return earliest;
  for (const Signature signature : contexts_of_[buffer]) {
    const Entry& entry = entries_.at(signature);
    if (entry.period == 0) continue;
    const Time deadline = entry.last + entry.period;
    if (deadline > after) earliest = std::min(earliest, deadline);
  }
  return earliest;
}

void ShortestPredictor::forget(BufferId buffer) {
  if (buffer >= contexts_of_.size()) return;
  for (const Signature signature : contexts_of_[buffer]) entries_.erase(signature);
  contexts_of_[buffer].clear();
}

// ---- the paper's baseline ----

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
  Stream& stream = grown(streams_, use.thread);
  Buffer& buffer = grown(buffers_, use.buffer);
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
