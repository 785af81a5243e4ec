// The state word of a firehose, at its initiator: uses, state and generation in one atomic 64-bit value.
//
//              want          hold            recall            end
//   absent ─────────> wanted ────> held ──────────────> recalled ───> absent
//      ^                │           └── end: a victim ───────────────────^
//      └─── refused ────┘
//
//   bits   field       meaning
//   24     uses        operations that may still touch the memory. The memory of so many is long used up.
//    2     state
//   38     generation  grows with each want(), so that a reader recognises the firehose it looked up
//
// Any thread calls load(), try_use() and end_use(); the rest runs under the initiator's lock. A use is
// counted in held only, so its return to zero in recalled is seen once: by the last end_use(), or by
// recall().
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace pinion::firehose {

enum class FirehoseState : std::uint8_t { absent, wanted, held, recalled };

template <class Atomics = StdAtomics>
class BasicFirehoseWord {
  static constexpr int kUseBits = 24, kStateBits = 2;
  static constexpr int kStateShift = kUseBits, kGenerationShift = kUseBits + kStateBits;
  static constexpr std::uint64_t kUses = (std::uint64_t{1} << kUseBits) - 1;
  static constexpr std::uint64_t kState = ((std::uint64_t{1} << kStateBits) - 1) << kStateShift;

 public:
  struct Value {
    std::uint64_t bits = 0;
    std::uint32_t uses() const { return static_cast<std::uint32_t>(bits & kUses); }
    FirehoseState state() const { return static_cast<FirehoseState>((bits & kState) >> kStateShift); }
    std::uint64_t generation() const { return bits >> kGenerationShift; }
  };

  Value load() const { return {word_.load(std::memory_order_acquire)}; }

  /// Counts a use of the firehose that `seen` was loaded from; false: it is not held any more.
  bool try_use(Value seen) {
    const std::uint64_t generation = seen.generation();
    while (seen.state() == FirehoseState::held && seen.generation() == generation) {
      if (word_.compare_exchange_weak(seen.bits, seen.bits + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        return true;
    }
    return false;
  }

  /// True: it was the last use of a recalled firehose.
  bool end_use() {
    const Value after{word_.fetch_sub(1, std::memory_order_acq_rel) - 1};
    return after.state() == FirehoseState::recalled && after.uses() == 0;
  }

  /// absent -> wanted, the next generation.
  void want() {
    const std::uint64_t next = load().generation() + 1;
    word_.store((next << kGenerationShift) | bits(FirehoseState::wanted), std::memory_order_release);
  }
  /// wanted -> held.
  void hold() { become(FirehoseState::held); }
  /// wanted -> absent.
  void refuse() { become(FirehoseState::absent); }
  /// held -> recalled. True: it is unused.
  bool recall() {
    const Value before{word_.fetch_or(kState, std::memory_order_acq_rel)};
    return before.uses() == 0;
  }
  /// held or recalled, and unused -> absent; false, and no change, if it is used.
  bool end() {
    Value seen = load();
    while (seen.uses() == 0) {
      if (word_.compare_exchange_weak(seen.bits, seen.bits & ~kState, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
        return true;
    }
    return false;
  }

 private:
  static constexpr std::uint64_t bits(FirehoseState state) {
    return static_cast<std::uint64_t>(state) << kStateShift;
  }
  static_assert(static_cast<std::uint64_t>(FirehoseState::recalled) << kStateShift == kState,
                "recall() sets all bits of the state");
  /// Called in states without uses.
  void become(FirehoseState state) {
    word_.store((load().bits & ~kState) | bits(state), std::memory_order_release);
  }

  typename Atomics::template Atomic<std::uint64_t> word_{0};
};

}  // namespace pinion::firehose
