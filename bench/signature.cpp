// `pinion bench signature`: naming a call by its stack, and all that a transfer adds to the critical path
// besides the look-up: signature, time stamp, ring push.
#include <execinfo.h>

#include "bench/bench.h"
#include "bench/parts.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 100'000;

double glibc_ns() {
  void* frames[16];
  ::backtrace(frames, 16);
  return ns_a_step(kSteps / 50, [&](std::size_t) { ::backtrace(frames, 16); });
}

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
