// Indexed min-heap of per-buffer deadlines. It keeps each buffer's position, so a time moves without a search
// or an allocation. Owned by the helper; one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "predict/predictor.h"

namespace pinion {

class Deadlines {
 public:
  struct Item {
    Time time;
    BufferId buffer;
    auto operator<=>(const Item&) const = default;
  };

  bool empty() const { return heap_.empty(); }
  /// The item with the earliest time; of equal times, the one of the lowest number.
  const Item& first() const { return heap_.front(); }

  /// Returns the buffer's time; kNever: it has none.
  Time of(BufferId buffer) const {
    const std::size_t at = buffer < places_.size() ? places_[buffer] : kNowhere;
    return at == kNowhere ? kNever : heap_[at].time;
  }
  /// Sets the buffer's time; kNever removes it.
  void set(BufferId buffer, Time time) {
    std::size_t at = buffer < places_.size() ? places_[buffer] : kNowhere;
    if (time == kNever) {
      if (at != kNowhere) remove(at);
      return;
    }
    if (at == kNowhere) {
      if (buffer >= places_.size()) places_.resize(buffer + std::size_t{1}, kNowhere);
      at = heap_.size();
      heap_.emplace_back();
    }
    place(at, {time, buffer});
  }

  std::vector<Item> in_order() const {
    std::vector<Item> items = heap_;
    std::sort(items.begin(), items.end());
    return items;
  }

 private:
  static constexpr std::uint32_t kNowhere = UINT32_MAX;

  void remove(std::size_t at) {
    places_[heap_[at].buffer] = kNowhere;
    const Item last = heap_.back();
    heap_.pop_back();
    if (at < heap_.size()) place(at, last);
  }
  /// Puts `item` where it belongs, up or down from the gap at `at`.
  void place(std::size_t at, Item item) {
    for (; at > 0 && item < heap_[(at - 1) / 2]; at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    for (std::size_t child; (child = 2 * at + 1) < heap_.size(); at = child) {
      if (child + 1 < heap_.size() && heap_[child + 1] < heap_[child]) ++child;
      if (item <= heap_[child]) break;
      put(at, heap_[child]);
    }
    put(at, item);
  }
  void put(std::size_t at, Item item) {
    heap_[at] = item;
    places_[item.buffer] = static_cast<std::uint32_t>(at);
  }

  std::vector<Item> heap_;
  std::vector<std::uint32_t> places_;  ///< by buffer
};

}  // namespace pinion
