#include "lease/use_trail.h"

namespace pinion {

void UseTrail::device_called(ThreadContext& thread, const Record& transfer, const DeviceCall& call) {
  push(thread, record_of(call, transfer));
  counters_.count_device_call(thread.counters[transfer.domain], call.registration, call.error);
}

}  // namespace pinion
