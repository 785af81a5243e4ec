// Memory events on their way from a sink's hooks to its ordinary code: to the engine's helper, which only
// learns from them (queued work and learnt buffers of the range are dropped; safety rests on the brackets and
// on doomed regions alone), and to subscriptions (subscriptions.h). post(): any thread, hooks and signal
// handlers included; lock-free. All else: one reader at a time. When the reader is lapped, the oldest events
// are lost, and take() reports that.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/range.h"

namespace pinion {

template <std::size_t Slots>
class BasicEventBoard {
 public:
  struct Event {
    Range range;
    Ticks time;
  };

  /// Only events near memory that transfers use are of interest: mark() names that memory. An event whose
  /// bracket was opened before the mark, and is not seen open after it, may be missed.
  void mark(Range range) {
    for_each_granule(range, [&](std::atomic<std::uint64_t>& word, std::uint64_t bit) {
      if (!(word.load(std::memory_order_relaxed) & bit)) word.fetch_or(bit, std::memory_order_seq_cst);
      return true;
    });
  }

  /// Whether the event was of interest.
  bool post(Range range) {
    bool interesting = false;
    for_each_granule(range, [&](std::atomic<std::uint64_t>& word, std::uint64_t bit) {
      interesting = word.load(std::memory_order_seq_cst) & bit;
      return !interesting;
    });
    if (!interesting) return false;
    const std::uint64_t ticket = posted_.fetch_add(1, std::memory_order_relaxed);
    Slot& slot = slots_[ticket % Slots];
    slot.sequence.store(0, std::memory_order_release);
    slot.begin.store(range.begin, std::memory_order_relaxed);
    slot.end.store(range.end, std::memory_order_relaxed);
    slot.time.store(ticks_now(), std::memory_order_relaxed);
    slot.sequence.store(ticket + 1, std::memory_order_release);
    return true;
  }

  /// The next event, in order. `lost` is set when events before it were overwritten.
  bool take(Event& event, bool& lost) {
    const std::uint64_t posted = posted_.load(std::memory_order_acquire);
    if (posted - taken_ > Slots) {
      lost = true;
      taken_ = posted - Slots / 2;
    }
    if (taken_ == posted) return false;
    Slot& slot = slots_[taken_ % Slots];
    if (slot.sequence.load(std::memory_order_acquire) != taken_ + 1) return false;  // being written
    event = {{slot.begin.load(std::memory_order_relaxed), slot.end.load(std::memory_order_relaxed)},
             slot.time.load(std::memory_order_relaxed)};
    if (slot.sequence.load(std::memory_order_acquire) != taken_ + 1) lost = true;
    ++taken_;
    return true;
  }

  /// Begins anew, with an empty filter.
  void forget() {
    for (std::atomic<std::uint64_t>& word : filter_) word.store(0, std::memory_order_relaxed);
    taken_ = posted_.load(std::memory_order_acquire);
  }

  /// Whether there are events that take() still holds back: one is being written.
  bool has_more() const { return posted_.load(std::memory_order_acquire) != taken_; }

 private:
  static constexpr unsigned kGranuleBits = 21;
  static constexpr std::size_t kFilterBits = std::size_t{1} << 16;
  struct Slot {
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<Address> begin{0}, end{0};
    std::atomic<Ticks> time{0};
  };

  // A range as long as the filter touches every bit of it once, so the walk is bounded.
  template <class F>
  void for_each_granule(Range range, F&& f) {
    if (range.empty()) return;
    const std::uint64_t first = range.begin >> kGranuleBits;
    const std::uint64_t last = (range.end - 1) >> kGranuleBits;
    for (std::uint64_t g = first; g <= last && g - first < kFilterBits; ++g) {
      const std::uint64_t at = g % kFilterBits;
      if (!f(filter_[at / 64], std::uint64_t{1} << (at % 64))) return;
    }
  }

  std::array<std::atomic<std::uint64_t>, kFilterBits / 64> filter_{};
  std::array<Slot, Slots> slots_;
  std::atomic<std::uint64_t> posted_{0};
  std::uint64_t taken_ = 0;
};

using EventBoard = BasicEventBoard<256>;

}  // namespace pinion
