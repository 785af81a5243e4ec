// The parts of an acquire and its release outside of the registry, which several benches measure.
// Single-threaded.
#pragma once

#include <functional>

#include "bench/ranges.h"
#include "callsite/call_site.h"
#include "lease/thread_context.h"

namespace pinion::cli {

/// Frames above a measured call: with the command's own ones about the 13 of a usual MPI program.
constexpr int kBenchDepth = 10;

/// Calls `leaf` from `depth` frames further down.
[[gnu::noinline]] inline double at_depth(int depth, const std::function<double()>& leaf) {
  const double result = depth > 0 ? at_depth(depth - 1, leaf) : leaf();
  asm volatile("" ::: "memory");  // no tail call
  return result;
}

[[gnu::noinline]] inline CallSite signed_call(ThreadContext& thread) {
  return thread.sites->capture(EntryFrame::here());
}

inline double signature_ns(std::size_t steps) {
  ThreadContext& thread = *this_thread();
  return best_ns_a_step(steps, [&](std::size_t) { signed_call(thread); });
}

/// All that a transfer adds to the critical path besides the look-up: signature, time stamp, ring push. From
/// the depth of a usual program.
double recording_ns();

inline double time_stamp_ns(std::size_t steps) {
  std::uint64_t sum = 0;
  const double ns = best_ns_a_step(steps, [&](std::size_t) { sum += ticks_now(); });
  asm volatile("" : : "r"(sum));
  return ns;
}

}  // namespace pinion::cli
