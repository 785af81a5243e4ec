// The state word of a region: leases, holds, state, marks and generation in one atomic 64-bit value. One
// read-modify-write decides each transition, so leases and holds are taken and returned lock-free.
//
//          begin_registering           commit               try_retire (no lease, no hold)
//   free ─────────────────> registering ──────> registered ───────────────────────> retiring ──> free
//                                └── refused by the device, or doomed meanwhile ────────────────^
//
//   bits   field       meaning
//   24     leases      transfers of this process that use the region
//   16     holds       peers that may use it remotely
//    2     state
//    1     doomed      its memory changes, or a larger region replaced it: no new lease, no new hold. It is
//                      retired when the last of them is returned.
//    1     queued      it is on the list of regions to be reaped
//    1     permanent   only its owner ends it (AcquireRequest::owner)
//   19     generation  grows with every use of the slab slot, and never wraps. A slot without a further one
//                      is not used again (at_last_generation), so equal generations are the same region.
//
// Widths. A lease is counted before it is granted, so one half of the field is room for refused counts: Linux
// has at most 2^22 threads (PID_MAX_LIMIT), each with one such count. The other half, 2^23 leases, may be
// granted. A request beyond that replaces the region by a new one, as a request for more rights does. Holds
// are granted one by one up to 2^16 - 1; a further peer is refused. A slot is lost every 2^19 registrations:
// less than a byte per thousand.
//
// Any thread may call count_in() and release() at any time, also on a word whose region has been recycled: a
// failed count is undone, and every transition preserves it.
#pragma once

#include <cstdint>

#include "base/atomics.h"

namespace pinion {

enum class RegionState : std::uint8_t { free, registering, registered, retiring };

template <class Atomics = StdAtomics>
class BasicRegionWord {
  static constexpr int kLeaseBits = 24, kHoldBits = 16, kStateBits = 2;
  static constexpr int kHoldShift = kLeaseBits, kStateShift = kHoldShift + kHoldBits;
  static constexpr int kMarkShift = kStateShift + kStateBits, kGenerationShift = kMarkShift + 3;
  static constexpr std::uint64_t kLeases = (std::uint64_t{1} << kLeaseBits) - 1;
  static constexpr std::uint64_t kLeasesFull = std::uint64_t{1} << (kLeaseBits - 1);
  static constexpr std::uint64_t kHold = std::uint64_t{1} << kHoldShift;
  static constexpr std::uint64_t kHolds = ((std::uint64_t{1} << kHoldBits) - 1) << kHoldShift;
  static constexpr std::uint64_t kState = ((std::uint64_t{1} << kStateBits) - 1) << kStateShift;
  static constexpr std::uint64_t kDoomed = std::uint64_t{1} << kMarkShift;
  static constexpr std::uint64_t kQueued = kDoomed << 1;
  static constexpr std::uint64_t kPermanent = kDoomed << 2;
  static constexpr std::uint64_t kGeneration = ~std::uint64_t{0} << kGenerationShift;
  static constexpr std::uint64_t state_bits(RegionState s) {
    return static_cast<std::uint64_t>(s) << kStateShift;
  }
  static constexpr std::uint64_t kRegistered = state_bits(RegionState::registered);
  static constexpr std::uint64_t kLeasable = kState | kDoomed | kLeasesFull;

 public:
  static constexpr std::uint32_t kMostLeases = std::uint32_t{1} << (kLeaseBits - 1);
  static constexpr std::uint32_t kMostHolds = (std::uint32_t{1} << kHoldBits) - 1;
  static constexpr std::uint32_t kLastGeneration = (std::uint32_t{1} << (64 - kGenerationShift)) - 1;
  static constexpr int kGenerationBits = 64 - kGenerationShift;
  /// Bits of a proof that are free for its owner's use.
  static constexpr int kProofBits = kStateShift;

  struct Value {
    std::uint64_t bits = 0;
    std::uint32_t leases() const { return static_cast<std::uint32_t>(bits & kLeases); }
    std::uint32_t holds() const { return static_cast<std::uint32_t>((bits & kHolds) >> kHoldShift); }
    bool used() const { return bits & (kLeases | kHolds); }
    RegionState state() const { return static_cast<RegionState>((bits & kState) >> kStateShift); }
    bool registered() const { return (bits & kState) == kRegistered; }
    bool doomed() const { return bits & kDoomed; }
    bool queued() const { return bits & kQueued; }
    bool permanent() const { return bits & kPermanent; }
    std::uint32_t generation() const { return static_cast<std::uint32_t>(bits >> kGenerationShift); }
    bool leasable() const { return (bits & kLeasable) == kRegistered; }
    /// Registered and unused at the moment: limits and retention may let it go.
    bool idle() const { return (bits & (kLeases | kHolds | kState | kDoomed | kPermanent)) == kRegistered; }
    /// The bits above kProofBits that grant count_in() a lease in this generation.
    std::uint64_t proof() const { return (bits & kGeneration) | kRegistered; }
  };

  /// The state after a returned lease or hold. `idle`: retention may let the region go now.
  enum class Released { in_use, idle, idle_doomed };

  Value load() const { return {word_.load(std::memory_order_acquire)}; }
  /// Like load(), in one order with doom() and the caller's own sequentially consistent stores.
  Value load_ordered() const { return {word_.load(std::memory_order_seq_cst)}; }

  /// Whether a lease that is counted elsewhere (lease/lease_count.h) is one on the region of that proof.
  bool grants(std::uint64_t proof) const {
    return ((load_ordered().bits ^ proof) & (kGeneration | kLeasable)) == 0;
  }

  /// Counts the caller in; a hit is this one locked instruction. True: the count is a lease on the region of
  /// that proof (Value::proof). False: no lease, but the count stands and release() must return it: it may be
  /// the last one of a doomed region, which must be noticed.
  bool count_in(std::uint64_t proof) {
    const std::uint64_t before = word_.fetch_add(1, std::memory_order_acquire);
    return ((before ^ proof) & (kGeneration | kLeasable)) == 0;
  }

  Released release() {
    Value before;
    return release(before);
  }
  /// Gives the value before, too: it names the region, which may be another at once.
  Released release(Value& before) {
    before.bits = word_.fetch_sub(1, std::memory_order_acq_rel);
    return left_by(before.bits, 1);
  }

  /// A hold on the region of that generation; false: refused.
  bool begin_hold(std::uint32_t generation) {
    Value v = load();
    do {
      if (!v.registered() || v.doomed() || v.generation() != generation || v.holds() == kMostHolds)
        return false;
    } while (!exchange(v, v.bits + kHold));
    return true;
  }
  Released end_hold() {
    const Value before{word_.fetch_sub(kHold, std::memory_order_acq_rel)};
    return left_by(before.bits, kHold);
  }

  /// free -> registering, with `leases` leases for the thread that registers; a new generation.
  void begin_registering(std::uint32_t leases) {
    update([&](Value v) {
      return ((v.bits & kGeneration) + (std::uint64_t{1} << kGenerationShift)) |
             state_bits(RegionState::registering) | (v.leases() + leases);
    });
  }
  /// free: begin_registering() would find no generation left.
  bool at_last_generation() const { return load().generation() == kLastGeneration; }

  enum class Commit {
    shared,
    unshared,   ///< for the registering thread's leases alone: doomed from the first
    permanent,  ///< try_retire() refuses it until it is doomed
  };
  /// registering -> registered; false (and no change) when the region was doomed meanwhile.
  bool commit(Commit how = Commit::shared) {
    const std::uint64_t marks = how == Commit::unshared ? kDoomed : how == Commit::permanent ? kPermanent : 0;
    Value v = load();
    do {
      if (v.doomed()) return false;
    } while (!exchange(v, with_state(v, RegionState::registered) | marks));
    return true;
  }

  /// registered, unused, neither permanent nor on the reap list -> retiring. The caller then owns the
  /// region.
  bool try_retire() {
    Value v = load();
    do {
      if (!v.registered() || v.used() || v.queued() || (v.permanent() && !v.doomed())) return false;
    } while (!exchange(v, with_state(v, RegionState::retiring)));
    return true;
  }

  /// registering -> retiring after commit() refused, dropping the registering thread's leases.
  void abandon(std::uint32_t leases) {
    update([&](Value v) { return with_state(v, RegionState::retiring) - leases; });
  }

  /// retiring -> free. Counts of stragglers are preserved.
  void set_free() {
    update([&](Value v) { return with_state(v, RegionState::free) & ~(kDoomed | kQueued | kPermanent); });
  }

  /// Returns the value before.
  Value doom() { return {word_.fetch_or(kDoomed, std::memory_order_seq_cst)}; }

  /// doom() for a caller without a lease: a later region in the slot is left alone.
  void doom_only(std::uint32_t generation) {
    Value v = load();
    do {
      if (v.generation() != generation || !v.registered()) return;
    } while (!word_.compare_exchange_weak(v.bits, v.bits | kDoomed, std::memory_order_seq_cst,
                                          std::memory_order_acquire));
  }

  /// True for the one caller that may put the region on the reap list in this generation.
  bool claim_reaping() {
    Value v = load();
    do {
      if (v.queued() || !v.doomed() || !v.registered()) return false;
    } while (!exchange(v, v.bits | kQueued));
    return true;
  }
  /// Off the reap list. A region that turns out to be in use then is queued again by its last release.
  void unclaim_reaping() { word_.fetch_and(~kQueued, std::memory_order_acq_rel); }

 private:
  /// `before` one `count` was returned.
  static Released left_by(std::uint64_t before, std::uint64_t count) {
    const std::uint64_t rest = before - count;
    constexpr std::uint64_t kUse = kLeases | kHolds | kState;
    if ((rest & (kUse | kDoomed | kPermanent)) == kRegistered) [[likely]]
      return Released::idle;
    return (rest & (kUse | kDoomed)) == (kRegistered | kDoomed) ? Released::idle_doomed : Released::in_use;
  }
  static std::uint64_t with_state(Value v, RegionState s) { return (v.bits & ~kState) | state_bits(s); }

  bool exchange(Value& expected, std::uint64_t next) {
    return word_.compare_exchange_weak(expected.bits, next, std::memory_order_acq_rel,
                                       std::memory_order_acquire);
  }
  template <class F>
  void update(F&& next) {
    Value v = load();
    while (!exchange(v, next(v))) {
    }
  }

  typename Atomics::template Atomic<std::uint64_t> word_{0};
};

using RegionWord = BasicRegionWord<>;

}  // namespace pinion
