// The trail that application threads leave for the helper: a record for each lease that ends, each device
// call and each hold, in the thread's ring. Hits that nobody learns from leave none (lease.h).
//
// Any thread, for its own context, outside of hooks. Free of locks.
#pragma once

#include "lease/bell.h"
#include "lease/counters.h"
#include "lease/thread_context.h"
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
  /// Counts a device call, and leaves its record. `transfer`: the record of the transfer that needed it.
  void device_called(ThreadContext& thread, const Record& transfer, const DeviceCall& call) {
    push(thread, record_of(call, transfer));
    counters_.count_device_call(thread.counters[transfer.domain], call.registration, call.error);
  }

 private:
  RunCounters& counters_;
  HelperBell& bell_;
};

}  // namespace pinion
