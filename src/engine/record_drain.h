// The helper's end of the rings: takes the records of all threads, and the memory events, in order of time,
// and hands each to retention and to the log. Keeps account of leave-pinned, the strategy that all others are
// measured against. The helper only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/coverage.h"
#include "engine/domain_table.h"
#include "engine/run_log.h"
#include "monitor/event_board.h"
#include "retention/look_schedule.h"
#include "retention/time_budget.h"

namespace pinion {

class RecordDrain {
 public:
  RecordDrain(DomainTable& domains, EventBoard& events, RunLog& log, TimeBudget& budget, Clock& clock)
      : domains_(domains), events_(events), log_(log), budget_(budget), clock_(clock) {}

  /// `dropped`: records that were lost before the run. `poll`: as LookSchedule takes it.
  void start(std::uint64_t dropped, Duration poll);
  void drain();
  /// Whether retention learns; false: another process of the node has the helper.
  void set_learning(bool learns) { learns_ = learns; }

  const LookSchedule& looks() const { return looks_; }
  std::uint64_t transfers() const { return transfers_; }
  std::size_t leave_pinned_bytes() const;
  double leave_pinned_registration_ns() const { return leave_pinned_registration_ns_; }

 private:
  struct Drained {
    Record record;
    std::uint16_t thread;
  };

  /// All memory events and records into batch_.
  void collect();
  void take(Record& record, std::uint16_t thread);
  void take_use(Record& record, std::uint16_t thread);
  void take_memory_change(Range range, Time time);
  void look_after_loss();

  DomainTable& domains_;
  EventBoard& events_;
  RunLog& log_;
  TimeBudget& budget_;
  Clock& clock_;
  bool learns_ = true;
  std::vector<Drained> batch_;
  bool events_lost_ = false;  ///< by the board, at the last collect()
  std::size_t fullest_ = 0;   ///< records of one ring, at the last collect()
  std::uint64_t dropped_ = 0, dropped_seen_ = 0;
  std::array<Coverage, kMostDomains> leave_pinned_;
  double leave_pinned_registration_ns_ = 0;
  std::uint64_t transfers_ = 0;
  LookSchedule looks_{kMillisecond, 0};  ///< begun by start()
};

}  // namespace pinion
