// The state word of a region: lease count, state, doom and generation in one atomic 64-bit value, so that
// every transition is decided by a single read-modify-write and nobody needs a lock to take or return a
// lease.
//
//          begin_registering           commit                 try_retire (no lease)
//   free ─────────────────> registering ──────> registered ───────────────────────> retiring ──> free
//                                └── refused by the device, or doomed meanwhile ────────────────^
//
// *doomed* means: the memory under the region changes, or a larger region replaced it. A doomed region
// refuses every new lease at once; it is retired when its last lease is returned. *queued* says that somebody
// already put it on the list of regions to be reaped. The generation grows with every use of the slab slot.
// Any thread may call count_in() and release() at any time, also on a word whose region has been recycled: a
// count taken in vain comes and goes, and every transition preserves it.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace pinion {

enum class RegionState : std::uint8_t { free, registering, registered, retiring };

template <class Atomics = StdAtomics>
class BasicRegionWord {
 public:
  struct Value {
    std::uint64_t bits = 0;
    std::uint32_t leases() const { return static_cast<std::uint32_t>(bits); }
    RegionState state() const { return static_cast<RegionState>((bits >> 32) & 7); }
    bool doomed() const { return bits & kDoomed; }
    bool queued() const { return bits & kQueued; }
    std::uint32_t generation() const { return static_cast<std::uint32_t>(bits >> 40); }
    bool leasable() const { return (bits & (kStateMask | kDoomed)) == state_bits(RegionState::registered); }
  };

  /// What a returned lease leaves behind.
  enum class Released { in_use, idle, idle_doomed };

  Value load() const { return {word_.load(std::memory_order_acquire)}; }

  /// Counts the caller in; a hit is this one locked instruction. True: the count is a lease. False: no lease,
  /// but the count stands and is returned by release() all the same, for it may be the last one of a doomed
  /// region, which must be noticed.
  bool count_in() {
    const Value before{word_.fetch_add(1, std::memory_order_acquire)};
    return before.leasable();
  }

  Released release() {
    const Value before{word_.fetch_sub(1, std::memory_order_acq_rel)};
    if (before.leases() != 1 || before.state() != RegionState::registered) return Released::in_use;
    return before.doomed() ? Released::idle_doomed : Released::idle;
  }

  /// free -> registering, with `leases` leases for the thread that registers; a new generation.
  void begin_registering(std::uint32_t leases) {
    update([&](Value v) {
      const std::uint64_t generation = (v.generation() + 1u) & 0xffffffu;
      return (generation << 40) | state_bits(RegionState::registering) | (v.leases() + leases);
    });
  }

  /// registering -> registered; false (and no change) when the region was doomed meanwhile. `unshared`: for
  /// the registering thread's leases alone; doomed from the first, so that nobody else is ever let in.
  bool commit(bool unshared = false) {
    Value v = load();
    do {
      if (v.doomed()) return false;
    } while (!word_.compare_exchange_weak(v.bits,
                                          with_state(v, RegionState::registered) | (unshared ? kDoomed : 0),
                                          std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  /// registered, without leases and not on the reap list -> retiring. The caller then owns the region.
  bool try_retire() {
    Value v = load();
    do {
      if (v.state() != RegionState::registered || v.leases() != 0 || v.queued()) return false;
    } while (!word_.compare_exchange_weak(v.bits, with_state(v, RegionState::retiring),
                                          std::memory_order_acq_rel, std::memory_order_acquire));
    return true;
  }

  /// registering -> retiring after commit() said no, dropping the registering thread's leases.
  void abandon(std::uint32_t leases) {
    update([&](Value v) { return with_state(v, RegionState::retiring) - leases; });
  }

  /// retiring -> free. Counts of stragglers are preserved.
  void set_free() {
    update([&](Value v) { return with_state(v, RegionState::free) & ~(kDoomed | kQueued); });
  }

  /// Returns the value before.
  Value doom() { return {word_.fetch_or(kDoomed, std::memory_order_seq_cst)}; }

  /// True for the one caller that may put the region on the reap list in this generation.
  bool claim_reaping() {
    Value v = load();
    do {
      if (v.queued() || !v.doomed() || v.state() != RegionState::registered) return false;
    } while (!word_.compare_exchange_weak(v.bits, v.bits | kQueued, std::memory_order_acq_rel,
                                          std::memory_order_acquire));
    return true;
  }

  /// Off the reap list. A region that turns out to be leased then is queued again by its last release.
  void unclaim_reaping() { word_.fetch_and(~kQueued, std::memory_order_acq_rel); }

 private:
  static constexpr std::uint64_t kStateMask = std::uint64_t{7} << 32;
  static constexpr std::uint64_t kDoomed = std::uint64_t{1} << 36;
  static constexpr std::uint64_t kQueued = std::uint64_t{1} << 37;

  static constexpr std::uint64_t state_bits(RegionState s) { return static_cast<std::uint64_t>(s) << 32; }
  static std::uint64_t with_state(Value v, RegionState s) { return (v.bits & ~kStateMask) | state_bits(s); }

  template <class F>
  void update(F&& next) {
    Value v = load();
    while (
        !word_.compare_exchange_weak(v.bits, next(v), std::memory_order_acq_rel, std::memory_order_acquire)) {
    }
  }

  typename Atomics::template Atomic<std::uint64_t> word_{0};
};

using RegionWord = BasicRegionWord<>;

}  // namespace pinion
