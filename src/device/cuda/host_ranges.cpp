#include "device/cuda/host_ranges.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace pinion::cuda {

namespace {

using Ranges = std::map<Address, Address>;

/// The first of the ranges that ends behind the address.
template <class Map>
auto first_behind(Map& ranges, Address address) {
  auto next = ranges.upper_bound(address);
  if (next != ranges.begin() && std::prev(next)->second > address) --next;
  return next;
}

bool contains(const Ranges& ranges, Range range) {
  const auto first = first_behind(ranges, range.begin);
  return first != ranges.end() && Range{first->first, first->second}.contains(range);
}

bool overlaps(const Ranges& ranges, Range range) {
  if (range.empty()) return false;
  const auto first = first_behind(ranges, range.begin);
  return first != ranges.end() && first->first < range.end;
}

}  // namespace

bool HostRanges::begin_registration(Range range) {
  const MutexLock lock(mutex_);
  if (range.empty() || touches(range)) return false;
  if (is_closed(range)) {
    unbar_unmapped();
    if (is_closed(range)) return false;
  }
  registered_.emplace(range.begin, range.end);
  return true;
}

void HostRanges::end_registration(Range range) {
  const MutexLock lock(mutex_);
  const auto found = registered_.find(range.begin);
  if (found != registered_.end() && found->second == range.end) registered_.erase(found);
}

void HostRanges::abandon_after_fork() {
  mutex_.free_in_child();
  // A thread that is missing here may have been changing them, or the allocator: their memory leaks.
  new (&registered_) Ranges;
  new (&closed_) std::vector<Range>;
  new (&barred_) Ranges;
  new (&pinned_) Ranges;
  unmapped_.forget();
}

bool HostRanges::close(std::span<const Range> ranges) {
  const MutexLock lock(mutex_);
  for (const Range& range : ranges)
    if (touches(range)) return false;
  closed_.insert(closed_.end(), ranges.begin(), ranges.end());
  return true;
}

void HostRanges::open(std::span<const Range> ranges) {
  const MutexLock lock(mutex_);
  for (const Range& range : ranges) {
    const auto found = std::find(closed_.rbegin(), closed_.rend(), range);
    if (found == closed_.rend()) continue;  // closed before a fork, by the parent
    *found = closed_.back();
    closed_.pop_back();
  }
}

void HostRanges::bar(Range range) {
  if (range.empty()) return;
  const MutexLock lock(mutex_);
  unbar_unmapped();  // what was unmapped earlier is other memory
  unmapped_.mark(range);
  // One range takes the place of all that it overlaps or touches.
  auto next = barred_.lower_bound(range.begin);
  if (next != barred_.begin() && std::prev(next)->second >= range.begin) --next;
  while (next != barred_.end() && next->first <= range.end) {
    range = {std::min(range.begin, next->first), std::max(range.end, next->second)};
    next = barred_.erase(next);
  }
  barred_.emplace(range.begin, range.end);
}

void HostRanges::add_pinned(Range range) {
  if (range.empty()) return;
  const MutexLock lock(mutex_);
  cut(pinned_, range);  // no two are live: the driver has ended the others
  pinned_.emplace(range.begin, range.end);
}

std::optional<Range> HostRanges::take_pinned(Address begin) {
  const MutexLock lock(mutex_);
  const auto found = pinned_.find(begin);
  if (found == pinned_.end()) return {};
  const Range range{begin, found->second};
  pinned_.erase(found);
  return range;
}

std::vector<Range> HostRanges::pinned() const {
  const MutexLock lock(mutex_);
  std::vector<Range> all;
  for (const auto& [begin, end] : pinned_) all.push_back({begin, end});
  return all;
}

Answer HostRanges::changing(const MemoryChange& change) {
  if (!change.is_advice() && change.kind != ChangeKind::rights) unmapped_.post(change.range);
  return Answer::proceed;
}

/// Bars of events that were lost stay, which costs speed alone.
void HostRanges::unbar_unmapped() {
  bool lost = false;
  UnmappedRanges::Event event;
  while (unmapped_.take(event, lost)) cut(barred_, event.range);
}

void HostRanges::cut(Ranges& ranges, Range range) {
  auto next = first_behind(ranges, range.begin);
  while (next != ranges.end() && next->first < range.end) {
    const Range old{next->first, next->second};
    next = ranges.erase(next);
    if (old.begin < range.begin) ranges.emplace(old.begin, range.begin);
    if (old.end > range.end) ranges.emplace(range.end, old.end);
  }
}

std::optional<Range> HostRanges::registration_of(Address address) const {
  const MutexLock lock(mutex_);
  const auto found = first_behind(registered_, address);
  if (found == registered_.end() || found->first > address) return {};
  return Range{found->first, found->second};
}

std::optional<Range> HostRanges::first_registration(Range range) const {
  const MutexLock lock(mutex_);
  const auto found = first_behind(registered_, range.begin);
  if (found == registered_.end() || found->first >= range.end) return {};
  return Range{found->first, found->second};
}

bool HostRanges::touches_registration(Range range) const {
  const MutexLock lock(mutex_);
  return touches(range);
}

bool HostRanges::is_barred(Range range) {
  const MutexLock lock(mutex_);
  if (contains(pinned_, range)) return true;
  if (!contains(barred_, range)) return false;
  unbar_unmapped();
  return contains(barred_, range);
}

bool HostRanges::may_register(Range range) {
  const MutexLock lock(mutex_);
  if (!is_closed(range)) return true;
  unbar_unmapped();
  return !is_closed(range);
}

bool HostRanges::touches(Range range) const { return overlaps(registered_, range); }

bool HostRanges::is_closed(Range range) const {
  const auto in_range = [range](Range closed) { return !closed.empty() && closed.overlaps(range); };
  return overlaps(barred_, range) || overlaps(pinned_, range) ||
         std::any_of(closed_.begin(), closed_.end(), in_range);
}

HostRanges& host_ranges() {
  static HostRanges* const ranges = [] {
    // Another thread may hold the mutex at a fork, also where no device is there to forget the ranges.
    ::pthread_atfork(nullptr, nullptr, [] { host_ranges().abandon_after_fork(); });
    return new HostRanges;  // never destroyed: threads may be inside at exit
  }();
  return *ranges;
}

}  // namespace pinion::cuda
