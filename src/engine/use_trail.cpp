#include "engine/use_trail.h"

#include <utility>

namespace pinion {

void UseTrail::count_in_run(ThreadContext& thread, const Record& lease, bool settled) {
  if (std::exchange(thread.runs_of, this) != this) thread.runs = {};
  const bool counted =
      thread.runs.end_or_count(lease, settled, [&](const Record& run) { push(thread, run); });
  thread.counts_runs = thread.runs.any();
  if (!counted) push(thread, lease);
}

void UseTrail::end_runs(ThreadContext& thread) {
  if (thread.runs_of == this) thread.runs.end_all([&](const Record& run) { push(thread, run); });
  thread.counts_runs = false;
}

void UseTrail::device_called(ThreadContext& thread, const Record& transfer, const DeviceCall& call) {
  push(thread, record_of(call, transfer));
  counters_.count_device_call(thread.counters[transfer.domain], call.registration, call.error);
}

}  // namespace pinion
