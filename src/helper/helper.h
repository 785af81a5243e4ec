// The helper thread: drains the rings, lets retention decide, makes its device calls, keeps the log. Owns the
// thread and all that only the helper uses.
//
// start(), ask_to_end(), join(), await_end() and forget(): the engine. equip(): under the mutex of the domain
// table. Everything else runs on the helper thread. Freed once the thread has ended; an exit may leave both
// behind.
#pragma once

#include "base/process.h"
#include "helper/device_work.h"
#include "helper/helper_figures.h"
#include "helper/helper_thread.h"
#include "helper/node_duties.h"
#include "helper/profile_file.h"
#include "helper/record_drain.h"
#include "helper/run_log.h"
#include "lease/counters.h"
#include "lease/domain_table.h"
#include "lease/engine_options.h"
#include "lease/node_membership.h"
#include "node/load.h"
#include "retention/desk.h"

namespace pinion {

class LeasePath;
class SegmentPreparation;

class Helper {
 public:
  Helper(const Options& options, const JobPlace& place, RunMemory& memory, DomainTable& domains,
         LeasePath& lease_path, SegmentPreparation& segments, MemoryWatch& watch, RunCounters& counters,
         NodeMembership& node, HelperBell& bell, Clock& clock);

  /// Gives a new domain its retention.
  void equip(DomainSlot& slot);

  /// Opens the log, and starts the thread. A log that cannot be written is left out; the run goes on.
  Error start(const runlog::RunInfo* log);
  void ask_to_end() { thread_.ask_to_end(); }
  void join() { thread_.join(); }
  /// Waits as long as the helper makes progress, at most about a minute. False: it has not ended.
  bool await_end() {
    return thread_.await_end([this] { return work_.progress(); });
  }
  /// Lets the domains go: their predictors and their retention; after join().
  void forget();

 private:
  void run();
  /// Every 200 ms: checks that memory events are still seen, and whether the process was asked to stop.
  void check(Time now);
  /// The process was asked to stop: nothing stays registered beyond its lease.
  void stand_aside();
  void let_everything_go();
  Time next_look_aside();
  /// Whether to look at the program's code again and again, because nothing can stay registered before.
  bool hurries_to_see(Time now);
  /// Every 200 ms at first, later each second: samples, and publishes to the node's other processes.
  void update(Time now);
  void sleep_until(Time wake);
  void end_of_run();

  const Options& options_;
  RunMemory& memory_;
  DomainTable& domains_;
  LeasePath& lease_path_;
  SegmentPreparation& segments_;
  MemoryWatch& watch_;
  HelperBell& bell_;
  Clock& clock_;
  Desk desk_;
  LearntProfile profile_;
  RunLog log_;
  RecordDrain drain_;
  DeviceWork work_;
  HelperFigures figures_;
  NodeDuties duties_;
  node::Load load_;
  HelperThread thread_;
  Time began_ = 0, last_check_ = 0, last_update_ = 0;
};

}  // namespace pinion
