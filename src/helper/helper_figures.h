// The helper's figures: what the run's counters, its log and retention's ledger get from the helper, and when
// the run's acts change. Owns the samples of pinned memory. The helper thread; start() before it.
#pragma once

#include "helper/record_drain.h"
#include "helper/run_log.h"
#include "lease/acts.h"
#include "lease/counters.h"
#include "lease/domain_table.h"
#include "lease/engine_options.h"
#include "lease/pinned_count.h"
#include "lease/run_memory.h"
#include "retention/desk.h"

namespace pinion {

class LeasePath;

class HelperFigures {
 public:
  HelperFigures(const Options& options, RunMemory& memory, DomainTable& domains, LeasePath& lease_path,
                RunCounters& counters, Desk& desk, RecordDrain& drain, RunLog& log, Clock& clock)
      : options_(options),
        memory_(memory),
        domains_(domains),
        lease_path_(lease_path),
        counters_(counters),
        desk_(desk),
        drain_(drain),
        log_(log),
        clock_(clock),
        acts_(acts_at_start(options)) {}

  void start() {
    pinned_.start();
    drain_.start(counters_.dropped_before());
  }
  /// Charges the helper's work so far to its share.
  void account(Time now);
  /// Logs a change of the process's acts (measured, pinned, verbs).
  void note_acts();
  void sample_growth(Time now) { pinned_.sample_growth(now, domains_.registered_bytes()); }
  void sample() { pinned_.sample(clock_.now(), domains_.registered_bytes()); }
  void woke() { ++wakeups_; }
  /// Puts the helper's share of the counters where others read it, and publishes all in the log.
  void publish();
  /// Tells retention of the bookkeeping, beside publish().
  void update(Time now);
  /// Completes the log, after the program's end.
  void finish();

 private:
  /// The helper's CPU since its start, and the modelled time of its device calls.
  Duration work() const;
  runlog::Counters tell();
  std::uint64_t modelled_strict_ns();
  void tell_domains();

  const Options& options_;
  RunMemory& memory_;
  DomainTable& domains_;
  LeasePath& lease_path_;
  RunCounters& counters_;
  Desk& desk_;
  RecordDrain& drain_;
  RunLog& log_;
  Clock& clock_;
  PinnedPeak pinned_;
  Acts acts_;  ///< as the log has it
  std::uint64_t wakeups_ = 0;
};

}  // namespace pinion
