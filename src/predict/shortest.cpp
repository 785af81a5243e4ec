#include "predict/shortest.h"

#include <algorithm>

namespace pinion {

Observed ShortestPredictor::observe(const Use& use) {
  const Time foreseen = next_use(use.buffer, use.last);
  learn(use);
  return {foreseen, next_use(use.buffer, use.time)};
}

void ShortestPredictor::learn(const Use& use) {
  const Signature signature = context_.enter(use);
  if (use.buffer >= contexts_of_.size()) contexts_of_.resize(use.buffer + std::size_t{1});
  auto& contexts = contexts_of_[use.buffer];

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

}  // namespace pinion
