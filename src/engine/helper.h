// The helper thread: drains the rings, lets retention decide, makes its device calls, keeps the log. Owns the
// thread and all that only the helper uses.
//
// start(), ask_to_end(), join(), await_end() and forget(): the engine. equip(): under the mutex of the domain
// table. Everything else runs on the helper thread. Freed once the thread has ended; an exit may leave both
// behind.
#pragma once

#include <atomic>
#include <thread>

#include "engine/acts.h"
#include "engine/counters.h"
#include "engine/device_work.h"
#include "engine/domain_table.h"
#include "engine/node_membership.h"
#include "engine/engine_options.h"
#include "engine/pinned_count.h"
#include "base/process.h"
#include "engine/profile_file.h"
#include "engine/record_drain.h"
#include "engine/run_log.h"
#include "node/load.h"
#include "retention/desk.h"

namespace pinion {

class LeasePath;

class Helper {
 public:
  Helper(const Options& options, const JobPlace& place, RunMemory& memory, DomainTable& domains,
         LeasePath& leases, MemoryWatch& watch, RunCounters& counters, NodeMembership& node, HelperBell& bell,
         Clock& clock);

  /// Gives a new domain its retention.
  void equip(DomainSlot& slot);

  /// Opens the log, and starts the thread. A log that cannot be written is left out; the run goes on.
  Error start(const runlog::RunInfo* log);
  void ask_to_end();
  void join() { thread_.join(); }
  /// Waits as long as the helper makes progress, at most about a minute. False: it has not ended.
  bool await_end();
  /// Lets the domains go: their predictors and their retention; after join().
  void forget();

 private:
  void main();
  /// Every 200 ms: whether memory events are still seen.
  void check(Time now);
  /// Every 200 ms at first, later each second: samples, and publishes to the node's other processes.
  void update(Time now);
  /// The helper's work so far, into its share.
  void account(Time now);
  /// Meets the needs of the node's other processes, and the decisions of its policy.
  void attend_node(Time now);
  void sleep_until(Time wake);
  /// Logs a change of the process's acts (measured, pinned, verbs).
  void note_acts();
  /// Puts the helper's share of the counters where others read it.
  void tell();
  /// The domains' shares: to the log, and to the choice of victims.
  std::uint64_t modelled_strict_ns();
  void tell_domains();
  void end_of_run();

  const Options& options_;
  RunMemory& memory_;
  DomainTable& domains_;
  LeasePath& leases_;
  MemoryWatch& watch_;
  RunCounters& counters_;
  NodeMembership& node_;
  HelperBell& bell_;
  Clock& clock_;
  Desk desk_;
  LearntProfile profile_;
  RunLog log_;
  RecordDrain drain_;
  DeviceWork work_;
  PinnedPeak pinned_;
  node::Load load_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> runs_{0};  ///< 1 from the thread's start to the end of all that it does
  /// 1: the thread's files are open. They are opened before start() returns to the program, which may take
  /// any number for its own files from then on.
  std::atomic<std::uint32_t> files_open_{0};
  Acts acts_;  ///< as the log has it
  std::uint64_t wakeups_ = 0;
  Time began_ = 0, last_check_ = 0, last_update_ = 0;
  node::CpuSet cpus_allowed_, cpus_run_on_;
};

}  // namespace pinion
