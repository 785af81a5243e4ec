// The simulated helper: takes records, sleeps, and makes the device calls that the desk (retention/desk.h)
// decides on, as the engine's helper does in real time. Owns the desk, the records on their way to it and the
// plan of its wake-ups. Threads notify() it; events wake it. One thread.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "node/attendance.h"
#include "node/node_table.h"
#include "retention/desk.h"
#include "retention/record.h"
#include "simulate/calls.h"
#include "simulate/domains.h"
#include "simulate/events.h"
#include "simulate/observer.h"
#include "simulate/process_settings.h"

namespace pinion::simulate {

/// A record on its way to the desk.
struct Noticed {
  TakenRecord taken;
  std::uint64_t number = 0;  ///< of the acquire
  UnderLeavePinned leave_pinned;
};

/// Records that wait for the helper.
class NoticedRing {
 public:
  explicit NoticedRing(std::size_t places) : places_(places) {}

  /// Memory events have a board of their own in the engine, which loses none that matters. Returns false if
  /// the record is lost.
  bool push(const Noticed& noticed) {
    const bool fits =
        noticed.taken.record.kind == runlog::EventKind::memory_event || waiting_.size() < places_;
    if (fits) waiting_.push_back(noticed);
    lost_ = lost_ || !fits;
    return fits;
  }
  const std::vector<Noticed>& waiting() const { return waiting_; }
  bool filling() const { return waiting_.size() >= places_ * 3 / 4; }
  void clear() { waiting_.clear(); }
  /// True if a record was lost since the last call.
  bool lost() { return std::exchange(lost_, false); }

 private:
  const std::size_t places_;
  std::vector<Noticed> waiting_;
  bool lost_ = false;
};

/// The plan of timed wake-ups: only the last planned one counts.
class WakeUps {
 public:
  WakeUps(const ProcessSettings& settings, Events& events) : settings_(settings), events_(events) {}

  /// The helper is to wake at that time; kNever: not by time.
  void plan(Time wake);
  /// The wake-up of that number has come, and counts.
  bool counts(std::uint32_t number) const { return number == plans_; }
  /// Returns how late the wake-up is that has come.
  Duration come();
  void cancel() { ++plans_; }
  bool planned() const { return planned_; }
  Time at() const { return at_; }

 private:
  const ProcessSettings& settings_;
  Events& events_;
  Time at_ = kNever;
  bool planned_ = false;
  std::uint32_t plans_ = 0;
};

/// Looks for which one stands: from a time on, so far apart; 0: a look stands for itself.
struct PutOff {
  Time since = 0;
  Duration apart = 0;
};

class SimulatedHelper final : public CallUser {
 public:
  /// All outlive it. `standing` returns what the process posts to the others of its node.
  SimulatedHelper(const ProcessSettings& settings, Events& events, Domains& domains, Calls& calls,
                  Observer& observer, runlog::Counters& counters,
                  std::function<node::NodeTable::Post()> standing);

  Desk& desk() { return desk_; }
  const Desk& desk() const { return desk_; }
  /// Sets whether there is a helper, and how long it may have to wait for its turn on a core that it
  /// shares.
  void set_helper(bool has_helper, Duration turn);
  /// It computes, or is in a device call.
  bool busy() const { return busy_; }

  // ---- threads ----

  /// A record leaves its thread. It may wake the helper.
  void notify(const Noticed& noticed);
  /// Counts bytes that await deregistration: with the next record they may wake the helper.
  void doomed(std::size_t bytes) { doomed_bytes_ += bytes; }
  /// A thread has waited so much more for registrations.
  void delayed(Duration more) { delayed_ += more; }

  // ---- events ----

  void wake_up(std::uint32_t number);
  void act();
  void collapsed();

  // ---- the end ----

  /// Takes the last records, and wakes no more.
  void finish();
  void add_to(runlog::Counters& counters, Time ended);

 private:
  void computes(Duration took) override;
  void acquired(std::uint32_t number, AcquireStep step) override;
  void retired(std::uint32_t number) override;
  /// The regions are gone since then, and what was to be collapsed is.
  void done_deregistering(Time gone);
  /// Takes the waiting records.
  void drain();
  void take(const Noticed& noticed);
  /// The uses that left no records, as far as retention knows of them.
  void log_runs();
  void log(runlog::Event event);
  /// Looks at the node's other processes, when it is time to, and leaves them theirs of its limit.
  void attend();
  void sleep();
  /// Puts off a look that will find nothing, unless a record wakes the helper. A pause of years, as a damaged
  /// log has it, would take billions of them: the older the run, the more does one look stand for.
  Time later(Time look);

  const ProcessSettings& settings_;
  Events& events_;
  Domains& domains_;
  Calls& calls_;
  Observer& observer_;
  runlog::Counters& counters_;
  const std::function<node::NodeTable::Post()> standing_;
  Desk desk_;
  NoticedRing ring_;
  WakeUps wake_ups_;
  Desk::Job job_;  ///< under way
  bool busy_ = false;
  bool alert_ = false;  ///< a transfer that found no registration wakes the helper
  std::size_t doomed_bytes_ = 0;
  std::optional<node::Attendance> attendance_;
  std::uint64_t attended_ = 0;  ///< acquires by then
  std::uint64_t looked_ = 0;    ///< acquires at the last look
  PutOff put_off_;
  Duration delayed_ = 0;  ///< waits of all threads for registrations
  Duration cpu_ = 0;
};

}  // namespace pinion::simulate
