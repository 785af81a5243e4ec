// `pinion bench signature`: naming a call by its stack, and all that a transfer adds to the critical path
// besides the look-up: signature, time stamp, ring push.
#include <execinfo.h>

#include "cli/bench/bench.h"
#include "cli/bench/parts.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 100'000;

[[gnu::noinline]] std::uint64_t recorded_call(ThreadContext& thread) {
  Record record;
  record.site = thread.sites->capture(EntryFrame::here());
  record.begin = ticks_now();
  Record out;
  thread.ring.push(record);
  thread.ring.pop(out);  // the helper's part: here only to keep the ring from filling
  return out.site;
}

double record_ns() {
  ThreadContext& thread = *this_thread();
  return ns_a_step(kSteps, [&](std::size_t) { recorded_call(thread); });
}
double glibc_ns() {
  void* frames[16];
  ::backtrace(frames, 16);
  return ns_a_step(kSteps / 50, [&](std::size_t) { ::backtrace(frames, 16); });
}
}  // namespace

double recording_ns() { return at_depth(kBenchDepth, record_ns); }

namespace {

void run(Bench& bench) {
  bench.note(
      "record: signature + time stamp + ring push (and the helper's pop, to keep the ring from filling).");
  bench.compare("signature", "ns", "ns",
                {{"pinion", [] { return at_depth(kBenchDepth, [] { return signature_ns(kSteps); }); }},
                 {"glibc", [] { return at_depth(kBenchDepth, glibc_ns); }}});
  bench.compare("record", "ns", "ns",
                {{"pinion", recording_ns}, {"time-stamp", [] { return time_stamp_ns(kSteps); }}});
}

const BenchRegistration registration{"signature", "Naming a call by its stack", run};

}  // namespace

}  // namespace pinion::cli
