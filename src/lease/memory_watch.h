// Memory events of a run: the monitor that sees them, and the consequences for the run's domains. Owns the
// choice of the monitor, and the counts of events and of doomed bytes.
//
// begin() and end(): the engine, which also adds this as a sink of memory_events.h, and removes it. watch(),
// check_hooks(): ordinary threads. report_exposure() and take_doomed(): the helper. The sink's functions:
// hooks, hence lock-free. Everything else: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "lease/arena_leases.h"
#include "lease/bell.h"
#include "lease/birth_advice.h"
#include "lease/domain_table.h"
#include "monitor/brackets.h"
#include "monitor/event_board.h"
#include "monitor/memory_sink.h"
#include "monitor/monitor.h"
#include "monitor/monitor_options.h"
#include "retention/desk.h"

namespace pinion {

class MemoryWatch final : public MemorySink {
 public:
  /// `keeps_idle`: regions are meant to stay registered beyond their leases. `registers`: from the start;
  /// else its gaps are reported at the first registration.
  MemoryWatch(DomainTable& domains, ArenaLeases& arena, EventBoard& events, const Brackets& brackets,
              HelperBell& bell, bool keeps_idle, bool registers)
      : domains_(domains),
        arena_(arena),
        events_(events),
        brackets_(brackets),
        bell_(bell),
        keeps_idle_(keeps_idle),
        registers_(registers) {}

  void begin(const MonitorOptions& options);
  void end();

  /// Watches the pages of memory before it is registered. An error: their events may go unseen.
  /// `is_held`: by peers, who keep it registered for longer than a transfer.
  Error watch(Range range, bool is_held = false);
  /// Regains sight that was lost meanwhile: called before anything is registered, and now and then by the
  /// helper.
  void check_hooks();
  /// Some memory events stay unseen for good: each region goes with its lease.
  bool keeps_nothing() const { return keeps_nothing_.load(std::memory_order_acquire); }
  /// Events may be missed now: a registration serves one lease.
  bool blind() const { return brackets_.sight.blind(); }
  /// Events may be missed, but perhaps not for long: check_hooks() is reading the code of the program's. For
  /// the helper.
  bool is_newly_blind(Time now);
  /// Reports hooks that another library leaves open to be overwritten.
  void report_exposure();
  BirthAdvice& births() { return births_; }
  const BirthAdvice& births() const { return births_; }
  std::uint64_t events_seen() const { return memory_events_.load(std::memory_order_relaxed); }

  // ---- the sink ----

  /// Dooms the regions in the range. Leases stay valid for their holders. Memory of the arena keeps its
  /// registration through changes that leave its pages in place (ArenaLeases::meet()).
  Answer changing(const MemoryChange& change) override;
  void unmapped(Range range) override { arena_.withhold(range); }
  void changed(Range) override { expect_reaping(); }
  MappingWish wish(std::size_t bytes) override { return births_.wish(bytes); }
  void appeared(const NewMapping& mapping) override {
    doom(mapping.range);
    if (mapping.plain) births_.appeared(mapping.range, mapping.tail);
  }
  /// Learnt stacks may lead through code that has gone.
  void code_unloaded() override;

  // ---- doomed regions ----

  /// The last lease of a doomed region has ended.
  void idle_and_doomed(std::size_t bytes) {
    doomed_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    expect_reaping();
  }
  /// The helper reaps now.
  void take_doomed() { doomed_bytes_.store(0, std::memory_order_relaxed); }
  /// More is doomed, and pinned still, than should wait for the helper's next look.
  bool much_doomed() const {
    return doomed_bytes_.load(std::memory_order_relaxed) >= LookSchedule::kMuchDoomed;
  }

 private:
  void doom(Range range, bool spares_arena = false);
  void keep_nothing(const Error& why);
  void report_keeping_nothing();
  void expect_reaping() {
    if (much_doomed() && bell_.asleep()) bell_.wake();
  }

  DomainTable& domains_;
  ArenaLeases& arena_;
  EventBoard& events_;
  const Brackets& brackets_;
  HelperBell& bell_;
  const bool keeps_idle_;
  MemoryMonitor* monitor_ = nullptr;  ///< set before the run is published
  bool keeps_shared_files_ = true;    ///< set with it
  std::atomic<bool> registers_;
  BirthAdvice& births_ = birth_advice();
  Error why_nothing_;  ///< written before `unreported_` is set
  std::atomic<bool> unreported_{false};
  Time blind_since_ = kNever;  ///< the helper's
  std::atomic<bool> keeps_nothing_{false};
  std::atomic<std::uint64_t> memory_events_{0};
  std::atomic<std::size_t> doomed_bytes_{0};  ///< since the helper last reaped
  int exposed_looks_ = 0;                     ///< of the helper, in a row, at which the hooks were open
};

}  // namespace pinion
