// One process in virtual time: the real Domain, retention and predictor over a ModelDevice, under a discrete
// event loop. Its threads follow their scripts; device calls take the model's time, and other events happen
// during them, for the registry works in steps. An acquire can find its region being registered and wait, or
// being deregistered and miss. Its helper works at the engine's desk (retention/desk.h).
//
// Owns the parts, and passes events to the one concerned: threads.h (scripts, leases, records), calls.h
// (device calls and the registry's steps), helper.h (the helper's sleep and its work), domains.h (the
// registry), comparison.h (what other strategies would hold). Everything else is the code of the product.
//
// Deterministic: equal scripts and settings give equal runs. One thread at a time; processes share nothing.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "predict/predictor.h"
#include "runlog/format.h"
#include "simulate/calls.h"
#include "simulate/comparison.h"
#include "simulate/domains.h"
#include "simulate/events.h"
#include "simulate/helper.h"
#include "simulate/observer.h"
#include "simulate/operation.h"
#include "simulate/process_settings.h"
#include "simulate/threads.h"

namespace pinion::simulate {

class Process {
 public:
  using Settings = ProcessSettings;

  /// `predictors` are for retentions helper and observe, one for each domain. `observer` outlives the
  /// process.
  Process(Settings settings, std::vector<std::unique_ptr<Predictor>> predictors, Observer& observer);
  /// Makes a process with one domain.
  Process(Settings settings, std::unique_ptr<Predictor> predictor, Observer& observer);

  /// Adds the next thread, which begins at once. `script` outlives the run.
  void add_thread(Script& script) { threads_.add(script); }
  /// Lets the thread go on: its script has more, after it had no more.
  void resume(std::uint16_t thread) { threads_.resume(thread); }
  /// Sets whether there is a helper (retention helper), and how long it may have to wait for its turn on a
  /// core that it shares. Without one, registrations stay.
  void set_helper(bool has_helper, Duration turn) { helper_.set_helper(has_helper, turn); }
  /// Does something at that time.
  void at(Time time, std::function<void()> what);
  /// Changes memory by `thread`, as the hooks report it.
  void change_memory(Range range, std::uint16_t thread = 0) { threads_.change_memory(range, thread); }

  /// Runs the next event, and the same thread's steps after it, up to the next other event and to `until`.
  void step(Time until = 0);
  /// Returns the time of the next event; kNever: nothing is to come.
  Time next_event() const { return events_.next(); }
  /// Threads have something to do.
  bool running() const { return events_.of_application() || calls_.waiting() || threads_.wait_for_peers(); }
  /// The helper is in a device call.
  bool helper_busy() const { return helper_.busy(); }
  /// The end of the run: finishes the helper's job, and lets all idle regions go at once.
  void finish();
  /// Lets its thread wait for these peers, which outlive it; before the thread is added.
  void meet_peers(Peers& peers) { threads_.meet_peers(peers); }
  /// The thread that waits for its peers goes on at `now`.
  void peers_came(Time now) { threads_.peers_came(now); }
  /// Advances the clock to a time between the last event and the next.
  void pass(Time time) { events_.clock().set(time); }

  Time now() { return events_.now(); }
  /// Returns when the thread that ran longest had done its last operation.
  Time ended() const { return threads_.ended(); }
  /// Returns the time of the deregistrations at the end, which comes after ended().
  Duration takes_at_end() const { return takes_at_end_; }
  /// The counters as the engine keeps them; the helper's CPU time is that of its device calls, and its
  /// modelled own.
  runlog::Counters counters();

  template <class F>
  void for_each_lease(F&& f) const {
    threads_.leases().for_each(f);
  }
  const TimeBudget& time_budget() const { return helper_.desk().time_budget(); }
  Retention& retention(std::size_t domain = 0) { return *domains_.all()[domain].kept.retention; }
  Domain& domain() { return domains_.all().front().domain; }
  ModelDevice& device() { return domains_.device(); }
  const Budget& budget() const { return domains_.budget(); }
  std::uint64_t acquires() const { return counters_.acquires; }
  /// Registered if nothing were let go.
  std::size_t left_pinned_bytes() const { return comparison_.left_pinned_bytes(); }

 private:
  const Settings settings_;
  runlog::Counters counters_{};
  Events events_;
  Domains domains_;
  Comparison comparison_;
  Calls calls_;
  SimulatedHelper helper_;
  Threads threads_;
  std::deque<std::function<void()>> scripts_;  ///< of at()
  Duration takes_at_end_ = 0;
};

}  // namespace pinion::simulate
