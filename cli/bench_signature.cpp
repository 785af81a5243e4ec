// `pinion bench signature`: naming a call by its stack, and all that a transfer adds to the critical path
// besides the look-up: signature, time stamp, ring push.
#include <execinfo.h>
#include <sys/mman.h>

#include <new>

#include "bench.h"
#include "bench_ranges.h"
#include "engine/thread_context.h"
#include "predict/call_site.h"

namespace pinion::cli {

namespace {

constexpr std::size_t kSteps = 100'000;
constexpr int kDepth = 10;  // with the command's own frames below about the 13 of a usual MPI program

using Measured = double (*)();

/// Calls `leaf` from `depth` frames further down.
[[gnu::noinline]] double at_depth(int depth, Measured leaf) {
  const double result = depth > 0 ? at_depth(depth - 1, leaf) : leaf();
  asm volatile("" ::: "memory");  // no tail call
  return result;
}

[[gnu::noinline]] CallSite intercepted_call(ThreadContext& thread) {
  return thread.sites->capture(EntryFrame::here());
}

[[gnu::noinline]] std::uint64_t recorded_call(ThreadContext& thread) {
  Record record;
  record.site = thread.sites->capture(EntryFrame::here());
  record.begin = ticks_now();
  Record out;
  thread.ring.push(record);
  thread.ring.pop(out);  // the helper's part: here only to keep the ring from filling
  return out.site;
}

double signature_ns() {
  ThreadContext& thread = *this_thread();
  return ns_a_step(kSteps, [&](std::size_t) { intercepted_call(thread); });
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
double time_stamp_ns() {
  std::uint64_t sum = 0;
  const double ns = ns_a_step(kSteps, [&](std::size_t) { sum += ticks_now(); });
  asm volatile("" : : "r"(sum));
  return ns;
}

void run(Bench& bench) {
  bench.note(
      "record: signature + time stamp + ring push (and the helper's pop, to keep the ring from filling).");
  bench.compare("signature", "ns", "ns",
                {{"pinion", [] { return at_depth(kDepth, signature_ns); }},
                 {"glibc", [] { return at_depth(kDepth, glibc_ns); }}});
  bench.compare("record", "ns", "ns",
                {{"pinion", [] { return at_depth(kDepth, record_ns); }}, {"time-stamp", time_stamp_ns}});
}

const BenchRegistration registration{"signature", "Naming a call by its stack", run};

}  // namespace

}  // namespace pinion::cli
