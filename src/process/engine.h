// The process's one engine: starting and stopping a run, sharing it among several users, forks. Owns the
// parts of the run and puts them together; each part states its own rules. A front that only makes transfers
// needs lease.h alone.
//
// start() and stop() are for one thread at a time; join() and leave() let several users share the engine and
// may be called by any thread. The engine object is never freed: threads and hooks may be inside it when the
// run ends.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/process.h"
#include "helper/helper.h"
#include "lease/arena_leases.h"
#include "lease/counters.h"
#include "lease/domain_table.h"
#include "lease/engine_options.h"
#include "lease/lease.h"
#include "lease/memory_watch.h"
#include "lease/node_membership.h"
#include "prepare/segment_preparation.h"

namespace pinion {

class Engine {
 public:
  /// The running engine, or null. One load.
  static Engine* running() { return running_.load(std::memory_order_acquire); }

  /// Starts the process's engine with one domain. An error undoes everything.
  static Error start(const Options& options, const JobPlace& place, const std::string& command);
  /// Ends the run: lets everything idle go, completes the log, ends the helper. Harmless when nothing runs.
  static void stop();
  /// Ends the run of a process that ends by exit(), perhaps in a signal handler that has interrupted
  /// anything: waits for the helper while it makes progress, at most about a minute, and leaves the rest of
  /// its work to the kernel.
  static void stop_at_exit();

  /// Share the engine among several users in one process: the first to join starts it, the last to leave
  /// stops it. A later user that `insist`s must want the options that run, else EBUSY. An engine that start()
  /// has started is shared, and left running. leave() gives EINVAL without a join.
  static Error join(const Options& options, const JobPlace& place, bool insist);
  static Error leave();

  /// For the function fork() that a front stands before the C library's: lets regions go before other
  /// libraries' fork handlers run, and returns to normal after the fork, in both processes. Any thread.
  static void before_fork();
  static void after_fork();

  /// Whether an engine was started in this process, now or earlier.
  static bool was_started() { return newest_ != nullptr; }

  /// Meets transfers below libraries, called before the first registration of one is served, and forgets
  /// those that were measured so far. Any thread. False: this run has a device of its own.
  bool act_below();

  const Options& options() const { return options_; }
  DomainTable& domains() { return domains_; }
  LeasePath& lease_path() { return lease_path_; }
  ArenaLeases& arena() { return arena_; }
  ThreadRetirement& retirement() { return lease_path_.retirement_; }
  RunCounters& counters() { return counters_; }
  const Budget& budget() const { return budget_; }

 private:
  Engine(const Options& options, const JobPlace& place, bool spends_modelled_time);
  ~Engine() = delete;

  static void watch_forks();
  /// `in_handlers`: other libraries' fork handlers may have run.
  void let_go_before_fork(bool in_handlers);
  Error publish();
  static Engine* withdraw();
  /// Called by the thread that ends the run.
  void end_run();
  runlog::RunInfo run_info(const JobPlace& place, const std::string& command, const std::string& device,
                           Time now);

  static std::atomic<Engine*> running_;
  /// The newest engine ever started: memory that is never freed stays reachable.
  static std::atomic<Engine*> newest_;

  Engine* earlier_ = nullptr;
  const Options options_;
  RealClock clock_;
  RunMemory& memory_;
  NodeMembership node_;
  Budget budget_;
  HelperBell bell_;
  DomainTable domains_;
  ArenaLeases arena_;
  MemoryWatch watch_;
  RunCounters counters_;
  LeasePath lease_path_;
  SegmentPreparation segments_;
  std::unique_ptr<Helper> helper_;  ///< freed by stop(), when the thread has ended
};

}  // namespace pinion
