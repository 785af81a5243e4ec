// The last source of leases (lease_path.h): the registry, where each request finds or makes a registration of
// its own. All that an application thread does in between hit and miss. Every use leaves a record.
//
// Owns the parameters of hits. Any thread, outside of hooks.
#pragma once

#include "engine/acquire_by_steps.h"
#include "engine/bounce_charge.h"
#include "engine/transfer.h"

namespace pinion {

/// Whether so much memory can be: more than the machine has is a mistake of the caller's.
bool is_possible(Range request);

class RegistrySource {
 public:
  RegistrySource(KnownDomains& domains, MemoryWatch& watch, UseTrail& trail, ThreadRetirement& retirement,
                 BounceCharge& bounce, AcquireBySteps& steps);

  /// Leases the range. False only with Refusal::report; then skip the release. Returns the reason of a
  /// refusal in `error`, when given.
  bool acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr);
  /// Leases the range if it is registered already; else false, without effect.
  bool try_acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                   Transfer& transfer);
  /// Records a use that its front serves without a registration; release() ends it.
  void observe(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer);
  void release(ThreadContext& thread, Transfer& transfer);
  /// Cancels a lease, and any registration made for it, unless other leases are out.
  void undo(ThreadContext& thread, Transfer& transfer);

 private:
  bool acquire_slow(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer,
                    Refusal refusal, Error* error);
  void begin_transfer(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                      Transfer& transfer);
  void hit(ThreadContext& thread, Region* region, const CallPoint& call, Transfer& transfer);
  static void note_observed(ThreadContext& thread, Transfer& transfer);
  bool refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error);

  KnownDomains& domains_;
  MemoryWatch& watch_;
  UseTrail& trail_;
  ThreadRetirement& retirement_;
  BounceCharge& bounce_;
  AcquireBySteps& steps_;
  const Ticks plausible_hit_;  ///< its bookkeeping takes no longer
};

}  // namespace pinion
