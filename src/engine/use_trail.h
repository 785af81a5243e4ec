// The trail that application threads leave for the helper: a record for each lease that ends, each device
// call and each hold, in the thread's ring. Uses whose region is settled are counted in the thread, and leave
// one record for a run of them (retention/use_runs.h).
//
// Any thread, for its own context, outside of hooks. Free of locks.
#pragma once

#include "engine/bell.h"
#include "engine/counters.h"
#include "engine/thread_context.h"
#include "registry/device_call.h"
#include "retention/record.h"

namespace pinion {

class UseTrail {
 public:
  UseTrail(RunCounters& counters, HelperBell& bell) : counters_(counters), bell_(bell) {}

  void push(ThreadContext& thread, const Record& record) {
    bell_.pushed(thread.ring.push(record), decltype(thread.ring)::capacity(),
                 [&] { return is_unforeseen(record); });
  }
  /// A lease has ended. `settled`: its region was when it began. Inline: it is a part of each release.
  [[gnu::always_inline]] void lease_ended(ThreadContext& thread, const Record& lease, bool settled) {
    if (settled || thread.counts_runs) [[unlikely]]
      return count_in_run(thread, lease, settled);
    push(thread, lease);
  }
  /// The run of the process is about to end: the thread's runs of uses leave their records.
  void end_runs(ThreadContext& thread);
  /// Counts a device call, and leaves its record. `transfer`: the record of the transfer that needed it.
  void device_called(ThreadContext& thread, const Record& transfer, const DeviceCall& call);

 private:
  void count_in_run(ThreadContext& thread, const Record& lease, bool settled);

  RunCounters& counters_;
  HelperBell& bell_;
};

}  // namespace pinion
