#include "registry/victims.h"

#include <algorithm>
#include <tuple>

namespace pinion {

namespace {

/// The gain of letting a region go; compared as tuples.
struct Worth {
  bool once;  ///< used once only, as far as is known
  double score;
  bool operator<(const Worth& other) const {
    return std::tie(once, score) < std::tie(other.once, other.score);
  }
};

Worth worth(const Region* region, Ticks now, double call_pages) {
  const auto pages = static_cast<double>(region->range().pages());
  const double bytes_for_time = pages / (pages + call_pages);
  // Ticks of other cores may be ahead of ours.
  const auto age =
      static_cast<double>(static_cast<std::int64_t>(now - region->last_use.load(std::memory_order_relaxed)));
  const auto interval = static_cast<double>(region->interval.load(std::memory_order_relaxed));
  if (interval == 0) return {true, age * bytes_for_time};
  return {false, (age < interval ? interval - age : age) * bytes_for_time};
}

std::int64_t by_last_use(const Region* region) {
  return static_cast<std::int64_t>(region->last_use.load(std::memory_order_relaxed));
}

}  // namespace

bool Victims::idle(const Region* region) { return region->word.load().idle(); }

void Victims::add(Region* region) {
  if (region->owner.load(std::memory_order_relaxed)) return;
  const Time next_use = region->next_use.load(std::memory_order_relaxed);
  if (next_use != 0 && order_ == Order::expected)
    expected_.push(region, -next_use);
  else
    others_.push(region, by_last_use(region));
}

void Victims::remove(Region* region) {
  for (RegionHeap* heap : {&expected_, &others_})
    if (heap->contains(region)) return heap->erase(region);
}

void Victims::expect(Region* region) {
  const Time next_use = region->next_use.load(std::memory_order_relaxed);
  if (expected_.contains(region) && next_use != 0) {
    expected_.rekey(region, -next_use);
  } else if (region->place.heap != 0) {
    remove(region);
    add(region);
  }
}

Region* Victims::take(Ticks now) {
  if (order_ == Order::least_recently_used) return take_least_recently_used();
  if (Region* region = take_sampled(now)) return region;
  return take_expected_last();
}

/// The first of the heap that is idle. `is_first`: whether the heap's top is in its place; where not, it has
/// been put there.
template <class IsFirst>
Region* Victims::take_first_idle(RegionHeap& heap, IsFirst&& is_first) {
  Region* found = nullptr;
  while (!found && !heap.empty()) {
    Region* top = heap.top();
    if (!is_first(top)) continue;
    heap.erase(top);
    if (idle(top))
      found = top;
    else
      in_use_.push_back(top);
  }
  for (Region* region : in_use_) add(region);
  in_use_.clear();
  return found;
}

// Keys are never later than the last use: a top whose key is true is the one. Each key that is not is paid
// for by a use since; regions in use are put back for the time being.
Region* Victims::take_least_recently_used() {
  return take_first_idle(others_, [this](Region* top) {
    const std::int64_t last_use = by_last_use(top);
    if (last_use <= others_.top_key()) return true;
    others_.rekey(top, last_use);
    return false;
  });
}

Region* Victims::take_sampled(Ticks now) {
  const std::size_t n = others_.size();
  Region* best = nullptr;
  Worth most{};
  const auto consider = [&](Region* region) {
    if (!idle(region)) return false;
    const Worth of = worth(region, now, call_pages_);
    if (!best || most < of) {
      best = region;
      most = of;
    }
    return true;
  };
  const auto random = [&] {  // xorshift
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  };
  if (n > kSample)
    for (std::size_t i = 0; i < kSample; ++i) consider(others_.at(random() % n));
  if (!best && n > 0) {  // few, or mostly in use
    const std::size_t first = random() % n;
    for (std::size_t i = 0, found = 0; i < n && found < kSample; ++i)
      found += consider(others_.at((first + i) % n));
  }
  if (best) others_.erase(best);
  return best;
}

// Regions in use were expected about now, and so are mostly below.
Region* Victims::take_expected_last() {
  return take_first_idle(expected_, [](Region*) { return true; });
}

std::size_t Victims::bucket(Range range) {
  const std::uint64_t mixed = (range.begin / page_size() + 31 * range.pages()) * 0x9e3779b97f4a7c15;
  return (mixed >> 32) % (kPasts / kPastsOfARange) * kPastsOfARange;
}

void Victims::remember(const Region* region) {
  if (pasts_.empty()) pasts_.resize(kPasts);
  const Range range = region->range();
  const auto first = pasts_.begin() + static_cast<std::ptrdiff_t>(bucket(range));
  // Take the same range's place, else the oldest.
  const auto place = std::min_element(first, first + kPastsOfARange, [&](const Past& a, const Past& b) {
    return std::make_pair(!(a.range == range), a.last_use) < std::make_pair(!(b.range == range), b.last_use);
  });
  *place = {range, region->last_use.load(std::memory_order_relaxed),
            region->interval.load(std::memory_order_relaxed)};
}

void Victims::recall(Region* region, Ticks now) const {
  if (pasts_.empty()) return;
  const Range range = region->range();
  const auto first = pasts_.begin() + static_cast<std::ptrdiff_t>(bucket(range));
  const auto past =
      std::find_if(first, first + kPastsOfARange, [&](const Past& p) { return p.range == range; });
  if (past == first + kPastsOfARange) return;
  region->interval.store(past->interval, std::memory_order_relaxed);
  region->last_use.store(past->last_use, std::memory_order_relaxed);
  region->used(now, now);
}

}  // namespace pinion
