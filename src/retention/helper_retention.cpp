#include "retention/helper_retention.h"

#include <algorithm>
#include <cmath>

namespace pinion {

HelperRetention::HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs,
                                 Settings settings)
    : domain_(domain), predictor_(predictor), settings_(settings), costs_(costs) {}

// ---- learning ----

void HelperRetention::use(Record& record, Time time, std::uint16_t thread) {
  Range pages = Range{record.address, record.address + record.bytes}.to_pages();
  const BufferId id = buffer_of(pages);
  Buffer& buffer = buffers_[id];
  const bool reused = buffer.last_use != 0;
  if (reused) {
    keep_score(buffer, id, time);
    buffer.longest_interval = std::max(buffer.longest_interval, time - buffer.last_use);
    if (record.outcome == runlog::Outcome::miss || record.outcome == runlog::Outcome::wait) {
      record.flags |= runlog::kLate;
      ++score_.late;
    }
  }
  buffer.last_use = time;
  buffer.access = buffer.access | record.access;
  buffer.region = record.region;
  buffer.give_up = kNever;
  largest_pages_ = std::max(largest_pages_, pages.pages());

  predictor_.observe({id, record.site, record.address, record.call, thread, time});
  buffer.predicted_at_release = predictor_.next_use(id, time);
  queue_.remove(id);
  if (record.region.current()) {
    const Time next = earliest_use(record.region.region->range(), time);
    record.region.region->next_use.store(next == kNever ? 0 : next, std::memory_order_relaxed);
  }
  undecided_.push_back(id);
}

void HelperRetention::keep_score(const Buffer& buffer, BufferId id, Time time) {
  ++score_.reuses;
  const auto interval = static_cast<double>(time - buffer.last_use);
  const auto within = [&](Time predicted, double share) {
    return predicted != kNever && std::abs(static_cast<double>(predicted - time)) <= share * interval;
  };
  score_.at_release_within_0_5 += within(buffer.predicted_at_release, 0.005);
  score_.at_release_within_5 += within(buffer.predicted_at_release, 0.05);
  const Time last = predictor_.next_use(id, buffer.last_use);
  score_.within_0_5 += within(last, 0.005);
  score_.within_5 += within(last, 0.05);
}

void HelperRetention::memory_event(Range range) {
  std::vector<BufferId> gone;
  const Address reach =
      largest_pages_ * page_size();  // no buffer that begins further before can reach into the range
  const Address first = range.begin > reach ? range.begin - reach : 0;
  for (auto at = by_begin_.lower_bound({first, 0}); at != by_begin_.end() && at->first.first < range.end;
       ++at) {
    if (at->first.second > range.begin) gone.push_back(at->second);
  }
  for (const BufferId id : gone) drop(id);
}

void HelperRetention::sweep() {
  for (const RegionRef& ref : domain_.idle_regions()) {
    const BufferId id = buffer_of(ref.region->range());
    buffers_[id].region = ref;
    buffers_[id].access = ref.region->access.load(std::memory_order_relaxed);
    undecided_.push_back(id);
  }
}

// ---- deciding ----

Time HelperRetention::earliest_use(Range region, Time after) const {
  Time earliest = kNever;
  for (auto at = by_begin_.lower_bound({region.begin, 0});
       at != by_begin_.end() && at->first.first < region.end; ++at) {
    if (at->first.second <= region.end) earliest = std::min(earliest, predictor_.next_use(at->second, after));
  }
  return earliest;
}

Duration HelperRetention::service_time(std::size_t pages) const {
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  // One item of the RQ (registration, update) and one of the DQ (hash, cache, deregistration, insert).
  return costs_.registration.upper(pages) + costs_.deregistration.upper(largest_pages_) + costs_.queue.hash +
         3 * compares;
}

bool HelperRetention::may_deregister(std::size_t pages, Time deadline, Time now) const {
  if (deadline == kNever) return true;  // used for the first time, or not expected back
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  const Duration t_p = costs_.deregistration.upper(pages) + compares /* insert */ +
                       costs_.registration.upper(pages) + compares /* update */ + costs_.wake.value();
  return now + t_p <= deadline;
}

Time HelperRetention::due(const RegistrationQueue::Item& item) const {
  const std::size_t pages = buffers_[item.buffer].pages.pages();
  return item.deadline - service_time(pages) - costs_.wake.value();
}

HelperRetention::Action HelperRetention::next(Time now) {
  Action action;
  if (!settings_.act) {
    undecided_.clear();
    return action;
  }

  // Registration condition: while it holds, the first item of the RQ may wait.
  while (!queue_.empty() && due(queue_.first()) <= now) {
    const BufferId id = queue_.first().buffer;
    queue_.remove(id);
    const Buffer& buffer = buffers_[id];
    if (buffer.region.current() && buffer.region.region->word.load().leasable()) continue;
    action.kind = Action::Kind::register_ahead;
    action.buffer = id;
    action.pages = buffer.pages;
    action.access = buffer.access;
    return action;
  }

  while (!undecided_.empty()) {
    const BufferId id = undecided_.back();
    undecided_.pop_back();
    const Buffer& buffer = buffers_[id];
    if (!buffer.live || !buffer.region.current()) continue;
    Region* region = buffer.region.region;
    const Range range = region->range();
    const Time deadline = earliest_use(range, now);
    if (!may_deregister(range.pages(), deadline, now)) {
      // Kept for a use that is near; should it not come, the region is looked at again.
      if (buffer.longest_interval) {
        buffers_[id].give_up = deadline + buffer.longest_interval;
        give_ups_.emplace(buffers_[id].give_up, id);
      }
      continue;
    }
    action.region = domain_.begin_retire(buffer.region);
    if (!action.region) continue;
    action.kind = Action::Kind::deregister;
    action.buffer = id;
    action.pages = range;
    return action;
  }

  while (!give_ups_.empty() && give_ups_.begin()->first <= now) {
    const auto [time, id] = *give_ups_.begin();
    give_ups_.erase(give_ups_.begin());
    Buffer& buffer = buffers_[id];
    if (!buffer.live || buffer.give_up != time) continue;
    buffer.give_up = kNever;
    if (!buffer.region.current()) continue;
    action.region = domain_.begin_retire(buffer.region);
    if (!action.region) continue;
    action.kind = Action::Kind::deregister;
    action.buffer = id;
    action.pages = action.region->range();
    return action;
  }

  action.wake_at = next_deadline();
  return action;
}

Time HelperRetention::next_deadline() const {
  Time wake = kNever;
  if (!queue_.empty()) wake = due(queue_.first());
  if (!give_ups_.empty()) wake = std::min(wake, give_ups_.begin()->first);
  return wake;
}

void HelperRetention::done(const Action& action, RegionRef region, bool ok, Duration took, Time now) {
  if (action.kind == Action::Kind::deregister) {
    costs_.deregistration.observe(action.pages.pages(), took);
    for (auto at = by_begin_.lower_bound({action.pages.begin, 0});
         at != by_begin_.end() && at->first.first < action.pages.end; ++at) {
      const BufferId id = at->second;
      const Time deadline = predictor_.next_use(id, now);
      if (deadline != kNever) queue_.insert(id, deadline, service_time(buffers_[id].pages.pages()));
    }
    return;
  }
  if (!ok || !buffers_[action.buffer].live) return;
  if (took > 0) costs_.registration.observe(action.pages.pages(), took);
  Buffer& buffer = buffers_[action.buffer];
  buffer.region = region;
  if (!region.current()) return;
  const Time next = earliest_use(region.region->range(), now);
  region.region->next_use.store(next == kNever ? 0 : next, std::memory_order_relaxed);
  buffer.give_up = now + std::max<Duration>(buffer.longest_interval, 10 * kMillisecond);
  give_ups_.emplace(buffer.give_up, action.buffer);
}

// ---- buffers ----

BufferId HelperRetention::buffer_of(Range pages) {
  const auto [at, is_new] = by_begin_.try_emplace({pages.begin, pages.end}, BufferId{0});
  if (!is_new) return at->second;
  BufferId id;
  if (free_ids_.empty()) {
    id = static_cast<BufferId>(buffers_.size());
    buffers_.emplace_back();
  } else {
    id = free_ids_.back();
    free_ids_.pop_back();
  }
  at->second = id;
  buffers_[id] = Buffer{};
  buffers_[id].live = true;
  buffers_[id].pages = pages;
  if (by_begin_.size() > kMostBuffers) forget_oldest();
  return id;
}

void HelperRetention::drop(BufferId id) {
  queue_.remove(id);
  predictor_.forget(id);
  by_begin_.erase({buffers_[id].pages.begin, buffers_[id].pages.end});
  buffers_[id] = Buffer{};
  free_ids_.push_back(id);
}

void HelperRetention::forget_oldest() {
  // Half of the buffers at once, so that a stream of buffers used only once costs O(1) amortized.
  std::vector<std::pair<Time, BufferId>> by_use;
  for (const auto& [key, id] : by_begin_) {
    const RegionRef& ref = buffers_[id].region;
    const bool registered = ref.current() && ref.region->word.load().leasable();
    if (!registered && buffers_[id].last_use != 0) by_use.emplace_back(buffers_[id].last_use, id);
  }
  const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
  std::nth_element(by_use.begin(), middle, by_use.end());
  for (auto at = by_use.begin(); at != middle; ++at) drop(at->second);
}

}  // namespace pinion
