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
  if (range.empty() || touches(range) || overlaps(own_, range)) return false;
  if (is_closed(range)) {
    unbar_unmapped();
    if (is_closed(range)) return false;
  }
  registered_.emplace(range.begin, range.end);
  return true;
}

void HostRanges::add_own(Range range) {
  const MutexLock lock(mutex_);
  own_.emplace(range.begin, range.end);
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
  new (&own_) Ranges;
  new (&closed_) std::vector<std::span<const Block>>;
  new (&barred_) Ranges;
  new (&pinned_) Ranges;
  unmapped_.forget();
}

template <class Meet>
void HostRanges::meet_touched(std::span<const Block> blocks, Meet&& meet) const {
  // A batch may have a hundred thousand blocks, and few registrations may be there.
  if (blocks.size() > registered_.size()) {
    for (const auto& [begin, end] : registered_)
      if (touch(blocks, {begin, end}) && meet(Range{begin, end})) return;
    return;
  }
  for (const Block& block : blocks) {
    const Range hull = block.hull();
    for (auto next = first_behind(registered_, hull.begin);
         next != registered_.end() && next->first < hull.end; ++next) {
      const Range registration{next->first, next->second};
      if (block.touches(registration) && meet(registration)) return;
    }
  }
}

bool HostRanges::close(std::span<const Block> blocks) {
  const MutexLock lock(mutex_);
  bool open = true;
  meet_touched(blocks, [&](Range) {
    open = false;
    return true;
  });
  if (open) closed_.push_back(blocks);
  return open;
}

void HostRanges::open(std::span<const Block> blocks) {
  const MutexLock lock(mutex_);
  const auto found = std::find_if(closed_.begin(), closed_.end(),
                                  [&](const auto& closed) { return closed.data() == blocks.data(); });
  if (found == closed_.end()) return;  // closed before a fork, by the parent
  *found = closed_.back();
  closed_.pop_back();
}

void HostRanges::bar(std::span<const Block> blocks) {
  // Other threads' copies wait for no more of a batch than this.
  constexpr std::size_t kAtATime = 1024;
  while (!blocks.empty()) {
    const MutexLock lock(mutex_);
    unbar_unmapped();  // what was unmapped earlier is other memory
    auto near = barred_.end();
    for (const Block& block : blocks.first(std::min(kAtATime, blocks.size())))
      if (!block.empty()) near = add_bar(near, block.hull());
    blocks = blocks.subspan(std::min(kAtATime, blocks.size()));
  }
}

HostRanges::Ranges::iterator HostRanges::add_bar(Ranges::iterator near, Range range) {
  const auto has = [&range, end = barred_.end()](Ranges::iterator bar) {
    return bar != end && Range{bar->first, bar->second}.contains(range);
  };
  // Pieces of a batch that is made again follow each other here.
  if (has(near)) return near;
  if (near != barred_.end() && has(++near)) return near;
  unmapped_.mark(range);
  // One range takes the place of all that it overlaps or touches.
  auto next = barred_.upper_bound(range.begin);
  if (next != barred_.begin() && std::prev(next)->second >= range.begin) --next;
  if (has(next)) return next;
  while (next != barred_.end() && next->first <= range.end) {
    range = {std::min(range.begin, next->first), std::max(range.end, next->second)};
    next = barred_.erase(next);
  }
  return barred_.emplace_hint(next, range.begin, range.end);
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
  for (const Ranges* const ranges : {&registered_, &own_}) {
    const auto found = first_behind(*ranges, address);
    if (found != ranges->end() && found->first <= address) return Range{found->first, found->second};
  }
  return {};
}

std::vector<Range> HostRanges::registrations_in(std::span<const Block> blocks) const {
  const MutexLock lock(mutex_);
  std::vector<Range> found;
  meet_touched(blocks, [&](Range registration) {
    found.push_back(registration);
    return false;
  });
  return found;
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
  const auto in_range = [range](std::span<const Block> closed) { return touch(closed, range); };
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
