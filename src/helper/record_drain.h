// The helper's end of the rings: takes the records of all threads, and the memory events, in order of time,
// and hands each to the desk and to the log. Keeps account of leave-pinned, the strategy that all others are
// measured against. The helper only.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/coverage.h"
#include "base/large_pages.h"
#include "helper/run_log.h"
#include "lease/birth_advice.h"
#include "lease/domain_table.h"
#include "lease/foreseen_waits.h"
#include "monitor/event_board.h"
#include "retention/desk.h"

namespace pinion {

class RecordDrain {
 public:
  RecordDrain(DomainTable& domains, EventBoard& events, Desk& desk, RunLog& log, BirthAdvice& births,
              Clock& clock)
      : domains_(domains), events_(events), desk_(desk), log_(log), births_(births), clock_(clock) {}

  /// `dropped`: records that were lost before the run.
  void start(std::uint64_t dropped) { dropped_seen_ = dropped; }
  void drain();
  /// Takes the uses that left no records, as far as retention knows of them.
  void take_runs();
  /// The last of them: from now on each use leaves a record.
  void end_runs(Time now);

  std::uint64_t transfers() const { return transfers_; }
  std::size_t leave_pinned_bytes() const { return bytes_of<kLeavePinned>(); }
  /// The bytes of leave-pinned and memory whose first lease still lasts, as those of libraries' pools do: it
  /// has no record yet.
  std::size_t needed_bytes() const { return bytes_of<kNeeded>(); }
  double leave_pinned_registration_ns() const { return leave_pinned_registration_ns_; }

 private:
  template <std::size_t Which>
  std::size_t bytes_of() const {
    std::size_t bytes = 0;
    for (const Coverages<2>& of_domain : pages_) bytes += of_domain.bytes<Which>();
    return bytes;
  }
  /// All memory events and records into batch_.
  void collect();
  void take(const TakenRecord& taken);
  void keep(runlog::Event event);
  void forget(Range pages);
  /// The effect of a lease, or a registration, under leave-pinned. Leases count as its own; the first
  /// registration of memory stands for the wait of its lease, which may last.
  UnderLeavePinned leave_pinned(const Record& record);

  DomainTable& domains_;
  EventBoard& events_;
  Desk& desk_;
  RunLog& log_;
  BirthAdvice& births_;
  Clock& clock_;
  std::vector<TakenRecord> batch_;
  bool events_lost_ = false;  ///< by the board, at the last collect()
  std::size_t fullest_ = 0;   ///< records of one ring, at the last collect()
  Ticks waited_ = 0;          ///< by all threads so far, at the last collect()
  std::uint64_t dropped_ = 0, dropped_seen_ = 0;
  /// What leave-pinned has registered; and that with everything that was registered.
  enum Union : std::size_t { kLeavePinned, kNeeded };
  std::array<Coverages<2>, kMostDomains> pages_;
  std::array<ForeseenWaits, kMostDomains> foreseen_;
  LargePages large_;  ///< by the registrations so far: hits leave no trace of the pages that they met
  double leave_pinned_registration_ns_ = 0;
  std::uint64_t transfers_ = 0;
};

}  // namespace pinion
