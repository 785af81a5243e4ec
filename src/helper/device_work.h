// The device calls of the helper: the jobs from its desk, and idle regions that have to go.
// Each call passes the fork gate, is counted, and enters the log. The helper only; progress(): any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "device/kernel/mapped_hugepages.h"
#include "helper/record_drain.h"
#include "helper/run_log.h"
#include "lease/counters.h"
#include "lease/domain_table.h"
#include "lease/fork_gate.h"
#include "lease/memory_watch.h"
#include "registry/blocking.h"
#include "retention/desk.h"

namespace pinion {

class DeviceWork {
 public:
  DeviceWork(DomainTable& domains, MemoryWatch& watch, RunCounters& counters, ForkGate& fork_gate, Desk& desk,
             RecordDrain& drain, RunLog& log, Clock& clock)
      : domains_(domains),
        watch_(watch),
        counters_(counters),
        fork_gate_(fork_gate),
        desk_(desk),
        drain_(drain),
        log_(log),
        clock_(clock) {}

  /// Carries out the desk's jobs that are due now; `attend` as Desk::next() takes it.
  void act(const std::function<void()>& attend);
  void retire_idle(DomainSlot& slot);
  void retire_all_idle();
  /// Lets idle regions go where they take mappings that the program may need (mapping_room.h).
  void keep_to_mappings();
  /// Empties the domain that is being closed, if there is one.
  void serve_closing();

  /// Counts the calls: it grows as long as the helper gets on.
  std::uint32_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  /// False: no job is due now.
  bool act_once(const std::function<void()>& attend);
  void deregister(Desk::Job& job, std::optional<ForkGate::Passage>& passage);
  void register_ahead(const Desk::Job& job);
  void collapse(Retention::Action& action);
  /// Counts a call, and logs it.
  void note(DomainSlot& slot, const DeviceCall& call);

  DomainTable& domains_;
  MemoryWatch& watch_;
  RunCounters& counters_;
  ForkGate& fork_gate_;
  Desk& desk_;
  RecordDrain& drain_;
  RunLog& log_;
  Clock& clock_;
  PageFiles page_files_;
  std::atomic<std::uint32_t> progress_{0};
};

}  // namespace pinion
