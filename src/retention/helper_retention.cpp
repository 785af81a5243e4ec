#include "retention/helper_retention.h"

#include <algorithm>
#include <cmath>

namespace pinion {

namespace {
constexpr Duration kLeastPatience = 10 * kMillisecond;
// Letting a region go that is used after all costs a late transfer; keeping it costs memory for a while,
// once. A machine that others begin to use too makes intervals twice as long as any before.
constexpr int kPatience = 3;

bool registered(const RegionRef& ref) { return ref.current() && ref.region->word.load().leasable(); }
}  // namespace

HelperRetention::HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs,
                                 Settings settings)
    : domain_(domain), predictor_(predictor), settings_(settings), costs_(costs) {}

// ---- learning ----

void HelperRetention::use(Record& record, Time time, std::uint16_t thread, Duration delayed) {
  if (thread >= delays_.size()) delays_.resize(thread + std::size_t{1});
  delays_[thread] = delayed;
  const Range pages = Range{record.address, record.address + record.bytes}.to_pages();
  const BufferId id = buffer_of(pages);
  Buffer& buffer = buffers_[id];
  buffer.thread = thread;
  if (buffer.last_use != kNotYet) {
    keep_score(buffer, id, time);
    buffer.longest_interval = std::max(buffer.longest_interval, time - buffer.last_use);
    if (record.outcome == runlog::Outcome::miss || record.outcome == runlog::Outcome::wait) {
      record.flags |= runlog::kLate;
      ++score_.late;
    }
  }
  buffer.last_use = std::max(buffer.last_use, time);
  buffer.access = buffer.access | record.access;
  // Regions may overlap: another one than before may have served.
  if (registered(buffer.region) && buffer.region.region != record.region.region)
    replaced_.push_back(buffer.region);
  buffer.region = record.region;
  look_again(id, kNever);
  largest_pages_ = std::max(largest_pages_, pages.pages());
  item_pages_.observe(pages.pages());

  predictor_.observe({id, record.site, record.address, record.call, thread, time - delayed});
  buffer.predicted_at_release = next_use(id, time);
  queue_.remove(id);
  if (registered(record.region)) {
    const Time next = earliest_use(record.region.region->range(), time);
    domain_.expect(record.region, next == kNever ? 0 : next);
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
  const Time last = next_use(id, buffer.last_use);
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

void HelperRetention::stop_acting() {
  if (!settings_.act) return;
  settings_.act = false;
  memory_event({0, ~Address{0}});  // nothing is queued, or to be looked at again
}

void HelperRetention::act_again() {
  if (settings_.act) return;
  settings_.act = true;
  sweep();
}

// ---- deciding ----

template <class F>
void HelperRetention::for_each_buffer_in(Range range, F&& f) const {
  for (auto at = by_begin_.lower_bound({range.begin, 0});
       at != by_begin_.end() && at->first.first < range.end; ++at) {
    if (at->first.second <= range.end) f(at->second);
  }
}

Time HelperRetention::next_use(BufferId id, Time after) const {
  const std::uint16_t thread = buffers_[id].thread;
  const Duration delayed = thread < delays_.size() ? delays_[thread] : 0;
  const Time next = predictor_.next_use(id, after - delayed);
  return next == kNever ? kNever : next + delayed;
}

Time HelperRetention::earliest_use(Range region, Time after) const {
  Time earliest = kNever;
  for_each_buffer_in(region, [&](BufferId id) { earliest = std::min(earliest, next_use(id, after)); });
  return earliest;
}

Duration HelperRetention::service_time(std::size_t pages) const {
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  return costs_.queue.hash + compares /* cache */ + costs_.deregistration.upper(item_pages_.value()) +
         compares /* insert */ + costs_.registration.upper(pages) + compares /* update */;
}

bool HelperRetention::may_deregister(std::size_t pages, Time deadline, Time now) const {
  if (deadline == kNever) return true;  // used for the first time, or not expected back
  const auto compares = static_cast<Duration>(queue_.size() + 1) * costs_.queue.compare;
  const Duration t_p = costs_.deregistration.upper(pages) + compares /* insert */ +
                       costs_.registration.upper(pages) + compares /* update */ + costs_.wake.value();
  return now + t_p <= queue_.room(deadline, service_time(pages));
}

bool HelperRetention::let_go(BufferId id, Time after, Time now, Action& action) {
  const Buffer& buffer = buffers_[id];
  if (!buffer.live || !registered(buffer.region)) return false;
  const Range range = buffer.region.region->range();
  const Time deadline = earliest_use(range, after);
  if (!may_deregister(range.pages(), deadline, now)) {
    look_again(id, std::max(deadline, now) + patience(buffer));
    return false;
  }
  return claim(buffer.region, after, action);
}

bool HelperRetention::claim(RegionRef ref, Time after, Action& action) {
  action.region = domain_.begin_retire(ref);
  if (!action.region) return false;  // in use: its release brings it back
  action.kind = Action::Kind::deregister;
  action.pages = action.region->range();
  action.after = after;
  return true;
}

Duration HelperRetention::patience(const Buffer& buffer) {
  return std::max(kPatience * buffer.longest_interval, kLeastPatience);
}

void HelperRetention::look_again(BufferId id, Time at) {
  Buffer& buffer = buffers_[id];
  if (buffer.look_at != kNever) looks_.erase({buffer.look_at, id});
  buffer.look_at = at;
  if (at != kNever) looks_.emplace(at, id);
}

Time HelperRetention::due(const RegistrationQueue::Item& item) const {
  const std::size_t pages = buffers_[item.buffer].pages.pages();
  return item.deadline - service_time(pages) - costs_.wake.value();
}

HelperRetention::Action HelperRetention::next(Time now) {
  Action action;
  if (!settings_.act) {
    undecided_.clear();
    replaced_.clear();
    return action;
  }

  // Registration condition: while it holds, the first item of the RQ may wait.
  while (!queue_.empty() && due(queue_.first()) <= now) {
    const BufferId id = queue_.first().buffer;
    queue_.remove(id);
    const Buffer& buffer = buffers_[id];
    if (registered(buffer.region)) continue;
    action.kind = Action::Kind::register_ahead;
    action.buffer = id;
    action.pages = buffer.pages;
    action.access = buffer.access;
    return action;
  }

  while (!replaced_.empty()) {
    const RegionRef ref = replaced_.back();
    replaced_.pop_back();
    if (claim(ref, now, action)) return action;
  }

  // A deadline that has passed since the use is a use that should come at any moment: it counts.
  while (!undecided_.empty()) {
    const BufferId id = undecided_.front();
    undecided_.pop_front();
    if (let_go(id, buffers_[id].last_use, now, action)) return action;
  }

  // Here it does not: the use was waited for long enough.
  while (!looks_.empty() && looks_.begin()->first <= now) {
    const BufferId id = looks_.begin()->second;
    look_again(id, kNever);
    if (let_go(id, now, now, action)) return action;
  }

  action.wake_at = next_deadline();
  return action;
}

Time HelperRetention::next_deadline() const {
  Time wake = kNever;
  if (!queue_.empty()) wake = due(queue_.first());
  if (!looks_.empty()) wake = std::min(wake, looks_.begin()->first);
  return wake;
}

void HelperRetention::done(const Action& action, RegionRef region, bool ok, Duration took, Time now) {
  if (action.kind == Action::Kind::deregister) {
    costs_.deregistration.observe(action.pages.pages(), took);
    for_each_buffer_in(action.pages, [&](BufferId id) {
      const Time deadline = next_use(id, action.after);
      if (deadline != kNever) queue_.insert(id, deadline, service_time(buffers_[id].pages.pages()));
    });
    return;
  }
  if (!ok || !buffers_[action.buffer].live) return;
  if (took > 0) costs_.registration.observe(action.pages.pages(), took);
  Buffer& buffer = buffers_[action.buffer];
  buffer.region = region;
  if (!registered(region)) return;
  const Time next = earliest_use(region.region->range(), now);
  domain_.expect(region, next == kNever ? 0 : next);
  look_again(action.buffer, now + patience(buffer));
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
  if (by_begin_.size() > forget_beyond_) forget_oldest(id);
  return id;
}

void HelperRetention::drop(BufferId id) {
  queue_.remove(id);
  look_again(id, kNever);
  predictor_.forget(id);
  by_begin_.erase({buffers_[id].pages.begin, buffers_[id].pages.end});
  buffers_[id] = Buffer{};
  free_ids_.push_back(id);
}

void HelperRetention::forget_oldest(BufferId except) {
  // Half of those without a region at once, so that a stream of buffers used only once costs O(1) amortized.
  std::vector<std::pair<Time, BufferId>> by_use;
  for (const auto& [key, id] : by_begin_) {
    if (id != except && !registered(buffers_[id].region)) by_use.emplace_back(buffers_[id].last_use, id);
  }
  const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
  std::nth_element(by_use.begin(), middle, by_use.end());
  for (auto at = by_use.begin(); at != middle; ++at) drop(at->second);
  // Where most have one, not again at every new buffer.
  forget_beyond_ = std::max(kMostBuffers, by_begin_.size() + kMostBuffers / 4);
}

}  // namespace pinion
