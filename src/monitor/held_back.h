// Unmappings that were held back. The program regards the memory as gone; it is still mapped, because peers
// hold it. Its addresses stay in use, so that the kernel keeps other mappings away.
//
// Owns a fixed array of such ranges. answer_to(), forget() and waits are for hooks: lock-free,
// allocation-free. carry_out() is ordinary code, of one thread at a time.
//
// RULES
//   - A range leaves the array by carry_out() alone, after its memory was unmapped. Else a later change could
//     free the addresses, the kernel could give them to a new mapping, and carry_out() would unmap that one.
//   - So a munmap that touches held-back memory is held back as well, also where all sinks agree; every other
//     change that touches it is refused. (For memory that is unmapped, the kernel itself answers madvise and
//     mprotect with ENOMEM.)
//   - Ranges that overlap are carried out by one call.
//   - A change that meets memory which is being carried out waits: for one munmap of a thread that holds its
//     signals, as it would wait in the kernel. The wait is bounded; then the change is refused.
//   - A change that could not be held back or refused (forget) has unmapped some of the memory, or mapped
//     other memory over it. The range is dropped: the rest of it stays mapped to the process's end, which is
//     better than unmapping memory of others.
//
// CONCURRENCY. Memory of a new range must not be carried out, as part of another, before the new range is
// held: its addresses would be free. So a hook checks that its range is free of carrying, offers it, and
// holds it only if the count of ranges taken in is unchanged. The carrying thread takes a range in, counts
// that, and then looks for ranges that overlap it. All of it is sequentially consistent, so at least one of
// them sees the other. The hook then takes its offer back and begins anew; the carrying thread lets go of the
// ranges it has taken in, and tries again. Each word has a number that grows with each use of its slot.
#pragma once

#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/atomics.h"
#include "monitor/memory_change.h"
#include "monitor/system_call.h"

namespace pinion {

template <class Atomics = StdAtomics, std::size_t Slots = 256>
class BasicHeldBack {
 public:
  std::size_t count() const { return used_.load(std::memory_order_acquire); }

  /// A hook, within the change's bracket: the final answer, after the sinks have answered `wanted`. When the
  /// array is full, munmap is refused too.
  Answer answer_to(const MemoryChange& change, Answer wanted) {
    if (wanted == Answer::proceed && count() == 0) [[likely]]
      return Answer::proceed;
    if (change.alternative == Answer::proceed) {
      forget(change.range);
      return Answer::proceed;
    }
    for (;;) {
      const std::uint64_t taken_in = taken_in_.load(std::memory_order_seq_cst);
      if (!await_carrying(change.range)) return Answer::refuse;
      const State met = state_of(change.range);
      if (met == kCarried) continue;
      if (met == kFree && wanted == Answer::proceed) return Answer::proceed;
      if (change.alternative != Answer::hold_back) return Answer::refuse;
      const Use use = offer(change.range);
      if (use.slot == nullptr) return Answer::refuse;
      if (taken_in_.load(std::memory_order_seq_cst) == taken_in) {
        use.slot->word.store(in_state(use.word, kHeld), std::memory_order_seq_cst);
        return Answer::hold_back;
      }
      take_back(use);
    }
  }

  /// A hook: the memory changes, or has changed, and could not be held back.
  void forget(Range range) {
    if (count() == 0) [[likely]]
      return;
    for (Slot& slot : slots_) {
      const Seen seen = look(slot);
      if (seen.state() == kHeld && seen.range.overlaps(range)) take_back({&slot, seen.word});
    }
  }

  /// Calls unmap(range) for all that is held back. The range stays held back where unmap() returns false, and
  /// where hooks keep offering ranges that overlap it.
  template <class Unmap>
  void carry_out(Unmap&& unmap) {
    constexpr int kTries = 100;
    for (Slot& slot : slots_) {
      for (int i = 0; i < kTries; ++i) {
        Range all;
        if (!take_in(slot, all)) break;
        const bool whole = take_in_overlaps(all);
        finish(whole && unmap(all) ? kFree : kHeld);
        if (whole) break;
        Atomics::relax();
      }
    }
  }

  /// Forgets all in a forked child: its copy of the memory stays mapped.
  void forget_all() {
    for (Slot& slot : slots_) slot.word.store(kFree, std::memory_order_relaxed);
    used_.store(0, std::memory_order_relaxed);
  }

 private:
  /// The lowest bits of a slot's word; the rest is its number.
  enum State : std::uint64_t { kFree, kWritten, kOffered, kHeld, kCarried, kStates = 8 };

  struct Slot {
    typename Atomics::template Atomic<std::uint64_t> word{kFree};
    typename Atomics::template Atomic<Address> begin{0}, end{0};
  };
  struct Use {
    Slot* slot;
    std::uint64_t word;
  };
  struct Seen {
    std::uint64_t word;
    Range range;
    State state() const { return static_cast<State>(word % kStates); }
  };

  static std::uint64_t in_state(std::uint64_t word, State state) { return word - word % kStates + state; }
  static bool change(Slot& slot, std::uint64_t from, std::uint64_t to) {
    return slot.word.compare_exchange_strong(from, to, std::memory_order_seq_cst);
  }

  /// The word and the range that belongs to it.
  static Seen look(const Slot& slot) {
    for (;;) {
      const std::uint64_t word = slot.word.load(std::memory_order_seq_cst);
      const Seen seen{word,
                      {slot.begin.load(std::memory_order_acquire), slot.end.load(std::memory_order_acquire)}};
      if (slot.word.load(std::memory_order_seq_cst) == word) return seen;
    }
  }
  /// kCarried where some of the range is carried, else kHeld where some is held back, else kFree. By one look
  /// at each slot: it may be carried after it was held.
  State state_of(Range range) const {
    State found = kFree;
    for (const Slot& slot : slots_) {
      const Seen seen = look(slot);
      if (seen.state() >= kHeld && seen.range.overlaps(range)) found = std::max(found, seen.state());
    }
    return found;
  }
  bool is_carried(Range range) const { return state_of(range) == kCarried; }

  Use offer(Range range) {
    for (Slot& slot : slots_) {
      const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
      const std::uint64_t written = in_state(word + kStates, kWritten);
      if (word % kStates != kFree || !change(slot, word, written)) continue;
      used_.fetch_add(1, std::memory_order_seq_cst);
      slot.begin.store(range.begin, std::memory_order_release);
      slot.end.store(range.end, std::memory_order_release);
      const std::uint64_t offered = in_state(written, kOffered);
      slot.word.store(offered, std::memory_order_seq_cst);
      return {&slot, offered};
    }
    return {nullptr, 0};
  }
  void take_back(const Use& use) {
    if (change(*use.slot, use.word, in_state(use.word, kFree))) used_.fetch_sub(1, std::memory_order_seq_cst);
  }

  /// Marks the slot as carried, and adds its range.
  bool take_in(Slot& slot, Range& all) {
    const Seen seen = look(slot);
    if (seen.state() != kHeld || !change(slot, seen.word, in_state(seen.word, kCarried))) return false;
    taken_in_.fetch_add(1, std::memory_order_seq_cst);
    all = all.empty() ? seen.range
                      : Range{std::min(all.begin, seen.range.begin), std::max(all.end, seen.range.end)};
    return true;
  }
  /// Takes in all that overlaps, as the range grows. False: a hook offers a range that overlaps.
  bool take_in_overlaps(Range& all) {
    for (bool grown = true; grown;) {
      grown = false;
      for (Slot& slot : slots_) {
        const Seen seen = look(slot);
        if (!seen.range.overlaps(all)) continue;
        if (seen.state() == kOffered) return false;
        if (seen.state() == kHeld) grown |= take_in(slot, all);
      }
    }
    return true;
  }
  /// Ends all that are carried: they are this thread's.
  void finish(State state) {
    for (Slot& slot : slots_) {
      const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
      if (word % kStates != kCarried) continue;
      slot.word.store(in_state(word, state), std::memory_order_seq_cst);
      if (state == kFree) used_.fetch_sub(1, std::memory_order_seq_cst);
    }
  }

  /// False: in vain.
  bool await_carrying(Range range) const {
    constexpr unsigned kSpins = 100, kRests = 20'000;  // one second at least
    for (unsigned turn = 0; is_carried(range); ++turn) {
      Atomics::relax();
      if (turn < kSpins) continue;
      if (turn == kSpins + kRests) return false;
      const timespec rest{0, 50'000};
      raw_system_call(SYS_nanosleep, arguments_of(&rest, 0));
    }
    return true;
  }

  std::array<Slot, Slots> slots_{};
  typename Atomics::template Atomic<std::size_t> used_{0};
  typename Atomics::template Atomic<std::uint64_t> taken_in_{0};  ///< counts
};

}  // namespace pinion
