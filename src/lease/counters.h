// The counters of a run: sums over threads, domains and the helper. Owns the number of records that were
// dropped before the run began. Any ordinary thread may read; values of running threads are as of now.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "device/kernel/collapse.h"
#include "lease/domain_table.h"
#include "lease/memory_watch.h"
#include "lease/run_memory.h"
#include "lease/thread_context.h"
#include "runlog/format.h"

namespace pinion {

class RunCounters {
 public:
  RunCounters(RunMemory& memory, const DomainTable& domains, const MemoryWatch& watch, Clock& clock)
      : memory_(memory), domains_(domains), watch_(watch), clock_(clock) {}

  /// Begins at zero: counters and records of an earlier run of the process are forgotten. Before any thread
  /// uses this run.
  void start();

  /// The counters of the process.
  runlog::Counters all() const;
  /// One domain's share: acquires, registrations and their times, registered bytes; nothing else is set.
  runlog::Counters of(int domain) const;
  /// The number of registrations that the helper made ahead, in one domain.
  std::uint64_t registrations_ahead(int domain) const {
    return domains_.slot(domain).by_helper.registrations.get();
  }
  /// Records that were lost before the run.
  std::uint64_t dropped_before() const { return dropped_before_; }

  /// The helper's share; by the helper.
  void tell(const runlog::Counters& helper);
  /// Counts a device call, or reports a failed deregistration once. By the counters' thread.
  void count_device_call(ThreadCounters& counters, bool registration, const Error& error);
  /// Counts a call that turns memory into hugepages. By the helper.
  void count_collapse(const Collapse& done, Duration cpu, Duration took);
  void count_no_collapse(std::size_t bytes) {
    collapses_.refused_bytes[static_cast<unsigned>(CollapseRefusal::not_now)].add(bytes);
  }

 private:
  struct Collapses {
    Counter bytes, cpu_ns, longest_ns, refused_bytes[kCollapseRefusals];
  };

  RunMemory& memory_;
  const DomainTable& domains_;
  const MemoryWatch& watch_;
  Clock& clock_;
  std::uint64_t dropped_before_ = 0;
  std::atomic<bool> failed_deregistration_reported_{false};
  Collapses collapses_;
};

}  // namespace pinion
