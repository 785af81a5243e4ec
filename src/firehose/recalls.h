// Memory events of this process against its peers' firehoses: how memory that peers may write comes to change
// only after they have let go. A sink of memory_events.h.
//
//   hook:   changing() ──> notes the change in a slot ──> held back, or asks and waits ──> changed() asks
//   agent:  take() ──> Owner::revoke() ... revoked ──> grant() ──> carry_out(), or the waiting hook goes on
//
//   munmap                   held back until the peers have let go
//   madvise to zeros         written in place where the memory is private and anonymous: firehoses stay
//   a shrinking break        refused, since malloc's lock is held; malloc keeps the memory
//   else                     waits for the peers, `patience` at most; then the call fails with ENOMEM.
//                            On a thread inside progress, which alone hears the peers, it fails at once
//   neither possible         goes on; the firehoses are recalled behind it
//
// A change that does not wait is asked for by changed(): it must be among those held back before the agent
// carries it out. The hook's side is free of locks and allocation: slots are words. A slot is its hook's
// until kAsked, and from kGranted on if it waits; else the agent's. Never destroyed, as every sink.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/range.h"
#include "monitor/memory_sink.h"

namespace pinion::firehose {

class Pins;

class Recalls final : public MemorySink {
 public:
  /// Wakes the agent; called from hooks.
  using Ring = void (*)(void* context);

  Recalls(const Pins& pins, Duration patience, Ring ring, void* context);

  pinion::Answer changing(const MemoryChange& change) override;
  void changed(Range range) override;
  void appeared(const NewMapping& mapping) override;

  // ---- the agent ----

  /// The name of a revocation of all memory.
  static constexpr std::uint64_t kEverything = ~std::uint64_t{0};
  struct Asked {
    std::uint64_t name;  ///< the revocation's
    Range range;
    Time deadline;  ///< the peers'
  };
  /// The next that a hook has asked for. False: there is none.
  bool take(Asked& asked);
  /// All peers have let go of the memory. True: its hook has gone on already; the agent carries the change
  /// out, and then calls end().
  bool grant(std::uint64_t name);
  /// The next whose change is over, or was given up after its deadline; end() frees its slot.
  bool take_over(std::uint64_t& name);
  void end(std::uint64_t name);

  /// This thread is the agent: it has the exact list of pinned memory, and must not wait for itself.
  static void become_agent();
  static bool is_agent();
  /// The job is over: hooks are out of it on return, and pass it by. Ordinary code.
  void leave();

 private:
  enum State : std::uint32_t { kFree, kWritten, kNoted, kAsked, kTaken, kGranted, kOver };
  struct Slot {
    std::atomic<std::uint32_t> state{kFree};
    std::atomic<Address> begin{0}, end{0};
    std::atomic<bool> waits{false};  ///< a hook waits for the grant
    std::atomic<pthread_t> thread{};
    std::atomic<Time> deadline{0};  ///< set by the agent as it takes the slot
    Range range() const {
      return {begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)};
    }
  };

  bool is_off() const;
  bool is_asked(Range range) const;
  Slot* note(Range range, bool waits, State state);
  pinion::Answer answer(const MemoryChange& change);
  pinion::Answer wait(Slot* slot);
  pinion::Answer drop_in_place(const MemoryChange& change);

  const Pins& pins_;
  const Duration patience_;
  const Ring ring_;
  void* const context_;
  const unsigned forks_;  ///< the firehoses are of the process that had so many
  std::atomic<bool> off_{false};
  std::atomic<unsigned> inside_{0};                            ///< hooks that use more than `pins_`
  std::atomic<bool> overflow_noted_{false}, overflow_{false};  ///< changes without a slot
  std::atomic<unsigned> used_{0};                              ///< slots
  std::array<Slot, 256> slots_;
};

}  // namespace pinion::firehose
