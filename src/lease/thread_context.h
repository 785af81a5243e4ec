// The state that each application thread owns: its ring to the helper, its call-site cache, its recent
// regions, its counters. Written by the owning thread; the helper pops the ring and reads the
// counters (relaxed atomics with one writer). Contexts live in mapped memory that is never unmapped; one that
// its thread left behind is given to the next new thread, with the records that the helper has still to
// drain.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/ring.h"
#include "callsite/call_site.h"
#include "lease/lease_count.h"
#include "placement/granules.h"
#include "registry/recent_regions.h"
#include "retention/record.h"
#include "runlog/format.h"

namespace pinion {

/// A counter with one writer: no locked instruction.
class Counter {
 public:
  [[gnu::always_inline]] void add(std::uint64_t n) { value_.store(get() + n, std::memory_order_relaxed); }
  std::uint64_t get() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// The time of an operation that is measured every so often. A sample that took far longer than those before,
/// or than the operation can take, holds a time slice of something else: it counts as `far` times their mean.
class SampledTime {
 public:
  void add(Ticks took, Ticks plausible) {
    const std::uint64_t n = samples_.get();
    const Ticks most = n ? std::max(plausible, kFar * ticks_.get() / n) : plausible;
    ticks_.add(std::min(took, most));
    samples_.add(1);
  }
  std::uint64_t ticks() const { return ticks_.get(); }
  std::uint64_t samples() const { return samples_.get(); }

 private:
  static constexpr std::uint64_t kFar = 4;
  Counter ticks_, samples_;
};

/// Most domains of one process.
constexpr int kMostDomains = runlog::kMaxDomains;

/// Counters of one thread in one domain.
struct ThreadCounters {
  // A hit touches these: in the context they share the line that every call touches. Acquires are a sum: each
  // ends as one hit, wait, miss, bounced or observed.
  Counter acquired_bytes, hits;
  Counter delayed_ticks;  ///< the sum of registrations, waits and copies that have delayed the thread
  Counter copied_ticks;   ///< of delayed_ticks: copies that a limit causes, with leave-pinned too
  Counter wait_ticks, registration_ticks, bounce_ticks;  ///< on the critical path
  Counter waits, misses, bounced, observed;
  Counter bounced_bytes;
  Counter registrations, deregistrations, registration_failures;
  Counter preempted_ns;  ///< of wait_ticks and registration_ticks
  SampledTime bookkeeping;
  Counter arena_passed;  ///< requests within the arena that went the ordinary way
};

/// Places of leases that each thread counts for itself (counted_leases.h): first those of regions that
/// threads share, then those of the arena's segments.
constexpr std::size_t kSharedPlaces = 32;
constexpr std::size_t kCountedPlaces = kSharedPlaces + Granules::kMost;
static_assert(kCountedPlaces < UINT16_MAX);

/// The thread's part of those counts. Written by the thread.
struct LeaseCounts {
  LeaseCount at[kCountedPlaces];
};

/// The program's registrations that Pinion passed on.
struct PassedCounters {
  Counter counts[runlog::kPassedReasons], bytes[runlog::kPassedReasons];  ///< by runlog::PassedFor
  Counter strict_ticks;  ///< in those whose keys end with them
};

struct ThreadContext {
  enum class State : std::uint32_t { live, left };

  // One cache line: a thread that computed for long finds its caches cold.
  alignas(64) CallSiteCache* sites = nullptr;
  ThreadCounters counters[kMostDomains];

  PassedCounters passed;
  RecentRegions recent;
  Ring<Record, 256> ring;
  // Read by the helper at every look, on a line of its own.
  alignas(64) std::atomic<State> state{State::live};
  std::uint16_t index = 0;
  ThreadContext* next = nullptr;  ///< all contexts, newest first; set before publication, then constant

  /// Behind the context, in memory that is touched where the thread has such leases.
  LeaseCounts& counted() { return *reinterpret_cast<LeaseCounts*>(this + 1); }
  const LeaseCounts& counted() const { return *reinterpret_cast<const LeaseCounts*>(this + 1); }
};

/// The calling thread's context, once this_thread() has made it. The model of access spares callers in other
/// libraries a call.
extern constinit thread_local ThreadContext* this_thread_context __attribute__((tls_model("initial-exec")));
ThreadContext* this_thread_first();

/// The calling thread's context, made at the first call (by mmap instead of malloc). Null only when the
/// system gives no memory, or the program has all keys of thread-specific data. Not from hooks.
inline ThreadContext* this_thread() {
  ThreadContext* const known = this_thread_context;
  return known != nullptr ? known : this_thread_first();
}
/// The calling thread's context if it has been made; else null.
inline ThreadContext* known_thread() { return this_thread_context; }
/// The newest of all contexts; follow `next`.
ThreadContext* all_threads();
/// Sums the leases that are out at a place of LeaseCounts over all threads (lease_count.h).
std::uint64_t leases_out_at(std::size_t place);
/// Forgets the parent's context in a forked child, whose only thread starts without one.
void forget_this_thread();
/// Whether contexts are a parent's.
bool is_forked_child();

}  // namespace pinion
