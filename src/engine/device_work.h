// The device calls of the helper: doomed regions, the decisions of retention, idle regions that have to go.
// Each call passes the fork gate, is counted, and enters the log. The helper only; progress(): any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/counters.h"
#include "engine/domain_table.h"
#include "engine/fork_gate.h"
#include "engine/memory_watch.h"
#include "engine/record_drain.h"
#include "engine/run_log.h"
#include "registry/blocking.h"

namespace pinion {

class DeviceWork {
 public:
  DeviceWork(DomainTable& domains, MemoryWatch& watch, RunCounters& counters, ForkGate& fork_gate,
             RecordDrain& drain, RunLog& log, Clock& clock)
      : domains_(domains),
        watch_(watch),
        counters_(counters),
        fork_gate_(fork_gate),
        drain_(drain),
        log_(log),
        clock_(clock) {}

  /// Reaps, and carries out what retention decides, until there is nothing left to do now.
  void act();
  void retire_idle(DomainSlot& slot);
  void retire_all_idle();
  /// Empties the domain that is being closed, if there is one.
  void serve_closing();
  /// Lets idle regions go until at most so many bytes are registered, as far as there are any.
  void shrink_to(std::uint64_t bytes);

  /// Counts the calls: it grows as long as the helper gets on.
  std::uint32_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  void reap(DomainSlot& slot);
  /// False: there is nothing to do now.
  bool act_once(DomainSlot& slot);
  void register_ahead(DomainSlot& slot, const HelperRetention::Action& action);
  /// Deregisters a region that was claimed.
  Retired<Time> retire(DomainSlot& slot, Region* region);
  void note(DomainSlot& slot, Range pages, bool registration, const Error& error, Time begin, Time end);

  DomainTable& domains_;
  MemoryWatch& watch_;
  RunCounters& counters_;
  ForkGate& fork_gate_;
  RecordDrain& drain_;
  RunLog& log_;
  Clock& clock_;
  std::atomic<std::uint32_t> progress_{0};
};

}  // namespace pinion
