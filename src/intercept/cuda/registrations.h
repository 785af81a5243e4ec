// The engine as the front for CUDA uses it: one domain on the device `cuda`, its leases, and the way out of
// regions that stand in the way of a call of the program.
//
// Owns the start of the engine, at the first copy of some size, and its domain. Any thread, outside of memory
// hooks. In a forked child everything is off.
#pragma once

#include "base/error.h"
#include "callsite/unwind.h"
#include "device/cuda/own_context.h"
#include "intercept/cuda/copy_call.h"
#include "lease/lease.h"

namespace pinion::cuda {

/// A copy's use of its host memory, from before the driver is called until the copy is done. It is leased,
/// or only recorded, so that retention learns from it. The destructor ends it.
class Use {
 public:
  Use() = default;
  ~Use() { end(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

  bool leased() const { return leases_ != nullptr && transfer_.region() != nullptr; }
  void end();

 private:
  friend class Registrations;
  LeasePath* leases_ = nullptr;  ///< null: no use
  ThreadContext* thread_ = nullptr;
  Transfer transfer_;
};

class Registrations {
 public:
  /// The driver has been initialized: makes ready what a later start needs while the program still is as
  /// every program is at its beginning.
  static void prepare();
  /// Those of the process, where the engine runs for the front; the first call starts it. Null: off, or
  /// stopped.
  static Registrations* running();
  /// The same, without starting anything.
  static Registrations* started();

  /// Leases the memory if it is registered already. False: `use` is left empty.
  bool try_lease(const LinearCopy& copy, const EntryFrame& entry, Use& use);
  /// Leases the memory, and registers it on this thread if need be. False: `use` is left empty, and the use
  /// is recorded.
  bool lease(const LinearCopy& copy, const EntryFrame& entry, Use& use);
  /// Records a use that goes without a registration.
  void record(const LinearCopy& copy, const EntryFrame& entry, Use& use);

  /// Whether there is a context to register in. The first call begins to make it, in a thread of its own.
  bool can_register();
  /// Whether retention registers at the first use, as its users have chosen.
  bool registers_at_once() const;
  /// Whether the limits leave room for so much more, while memory is not short.
  bool has_room(Range range) const;
  /// Lets idle and doomed regions in the range go.
  void let_go(Range range);
  /// Lets all go that is idle, for memory that the program pins. False: nothing is registered.
  static bool make_room();
  /// let_go(), also where the run has ended: then registrations are left over.
  static void let_go_at_any_time(Range range);
  /// The driver has failed for good: what is registered cannot be unregistered.
  static bool is_broken();
  /// Those that are begun from now on register nothing.
  static void only_stage();
  /// Registers nothing more. Regions go as they fall idle.
  void stop_registering();
  /// False for retention observe: nothing may change.
  bool acts() const { return leases_.registers(); }
  bool registers() const { return registers_.load(std::memory_order_relaxed); }

 private:
  Registrations(LeasePath& leases, int domain, OwnContext& context, bool registers)
      : leases_(leases), domain_(domain), context_(context), registers_(registers) {}
  static Registrations* start();
  static Error begin(Registrations*& made);
  static void end_at_exit();
  CallPoint call_point(ThreadContext& thread, const LinearCopy& copy, const EntryFrame& entry) const;

  LeasePath& leases_;
  const int domain_;
  OwnContext& context_;
  std::atomic<bool> registers_;
  std::atomic<bool> made_{false};  ///< the context, or it is being made
};

}  // namespace pinion::cuda
