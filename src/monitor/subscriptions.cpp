#include "monitor/subscriptions.h"

#include <algorithm>

namespace pinion {

template <class F>
void Subscriptions::for_each_overlapping(Range range, F&& f) {
  const Address first = range.begin - std::min<Address>(range.begin, longest_);
  for (auto at = ranges_.lower_bound({first, 0}); at != ranges_.end() && at->first.first < range.end; ++at) {
    const Range held{at->first.first, at->first.second};
    if (held.overlaps(range)) f(held, at->second);
  }
}

void Subscriptions::read_board() {
  bool news = false, lost = false;
  const auto make_stale = [&news](Range, Subscription& subscription) {
    news = news || !subscription.stale;
    subscription.stale = true;
  };
  for (decltype(board_)::Event event; board_.take(event, lost);)
    for_each_overlapping(event.range, make_stale);
  if (lost) for_each_overlapping({0, ~Address{0}}, make_stale);
  news_ = news_ || news;
}

void Subscriptions::subscribe(Range range) {
  const MutexLock lock(mutex_);
  refused_ = {};
  read_board();  // the registration is later than these events
  Subscription& subscription = ranges_[{range.begin, range.end}];
  ++subscription.holders;
  longest_ = std::max(longest_, range.bytes());
  board_.mark(range);
  // Dekker's protocol: an event that is going on has seen the mark, or is seen here.
  if (brackets_.sight.blind() || brackets_.changing(range) || board_.has_more()) {
    subscription.stale = true;
    news_ = true;
  }
}

void Subscriptions::drop(Range range) {
  const auto at = ranges_.find({range.begin, range.end});
  if (at != ranges_.end() && --at->second.holders == 0) ranges_.erase(at);
}

void Subscriptions::unsubscribe(Range range) {
  const MutexLock lock(mutex_);
  if (std::exchange(refused_, {}) == range) return;  // dropped already
  drop(range);
}

bool Subscriptions::valid(Range range) {
  const MutexLock lock(mutex_);
  refused_ = {};
  if (is_valid(range)) return true;
  refused_ = range;
  drop(range);
  return false;
}

bool Subscriptions::is_valid(Range range) {
  if (brackets_.sight.blind() || brackets_.changing(range)) return false;
  read_board();
  if (board_.has_more()) return false;
  if (const auto same = ranges_.find({range.begin, range.end}); same != ranges_.end())
    return !same->second.stale;
  // Some releases query the requested range rather than the whole registered one.
  bool held = false, stale = false;
  for_each_overlapping(range, [&](Range whole, const Subscription& subscription) {
    if (!whole.contains(range)) return;
    held = true;
    stale |= subscription.stale;
  });
  return held && !stale;
}

std::vector<Range> Subscriptions::take_stale() {
  std::vector<Range> found;
  const MutexLock lock(mutex_);
  read_board();
  if (!news_) return found;
  news_ = false;
  for (auto& [key, subscription] : ranges_) {
    if (!subscription.stale || subscription.taken) continue;
    subscription.taken = true;
    found.push_back({key.first, key.second});
  }
  return found;
}

void Subscriptions::forget_stale(Range range) {
  const MutexLock lock(mutex_);
  const auto at = ranges_.find({range.begin, range.end});
  // A subscription made since is dropped too; its holder subscribes again.
  if (at != ranges_.end() && at->second.taken) ranges_.erase(at);
}

}  // namespace pinion
