// Retention `helper`: the helper-thread scheme of Li et al. (CF'11), sections 3.2 and 4, as steps.
//
// Decides, over its parts: the buffers with their next uses and costs (buffers.h), and the plans of its work
// on them (plans.h). Owns these. It belongs to one thread (the helper's, or the simulator's); it takes time
// only from the `now` it is given and registration only through a Domain. Its caller makes the device calls:
// next() returns the action, done() takes the result.
//
// prediction-and-retention.md says where it goes beyond the paper.
#pragma once

#include <cmath>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/buffers.h"
#include "retention/costs.h"
#include "retention/plans.h"
#include "retention/retention.h"
#include "runlog/format.h"

namespace pinion {

/// The score of a domain's predictions: every reuse of a buffer counts, an unpredicted one as wrong.
struct PredictionScore {
  std::uint64_t reuses = 0;
  std::uint64_t within_0_5 = 0, within_5 = 0;  ///< at the last moment it could still act
  std::uint64_t at_release_within_0_5 = 0, at_release_within_5 = 0;  ///< one full reuse ahead
  std::uint64_t late = 0;

  /// Counts a reuse at `time` that came so long after the use before; kNever: it was not predicted.
  void count(Time time, Duration interval, Time at_release, Time at_last) {
    ++reuses;
    const double whole = static_cast<double>(interval), most = 0.05 * whole, least = 0.005 * whole;
    const auto compare = [&](Time predicted, std::uint64_t& almost_right, std::uint64_t& near) {
      if (predicted == kNever) return;
      const double error = std::abs(static_cast<double>(predicted - time));
      almost_right += error <= least;
      near += error <= most;
    };
    compare(at_release, at_release_within_0_5, at_release_within_5);
    compare(at_last, within_0_5, within_5);
  }
  /// Adds to the counters of the process, which are zero or have another domain's counts.
  void add_to(runlog::Counters& counters) const {
    counters.reuses += reuses;
    counters.within_0_5 += within_0_5;
    counters.within_5 += within_5;
    counters.at_release_within_0_5 += at_release_within_0_5;
    counters.at_release_within_5 += at_release_within_5;
    counters.late += late;
  }
};

class HelperRetention final : public Retention {
 public:
  struct Settings {
    bool act = true;  ///< false: predict and keep score only (retention observe)
    /// The time budget. Null: all is allowed.
    TimeBudget* budget = nullptr;
    /// A region goes only where memory has been short, or after a rest of kLongRest.
    bool keeps_until_short = false;
    CollapseSettings collapse = {};
    /// Returns the name of a call site in predictions, which outlives the run; empty: its number.
    std::function<std::uint64_t(std::uint64_t)> site_name;
    std::shared_ptr<Predictor> own_predictor = {};  ///< kept with the retention; null where it is another's
  };

  /// `costs` is fed by done(), and by the caller with the device calls of other threads.
  HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs, Settings settings);

  /// An item of the deregistration queue. next() returns the action that follows. Its waits must have been
  /// charged to the time budget before.
  bool use(const runlog::Event& lease, RegionRef region, Duration delayed) override;
  /// Ends the reservation for the use: what comes after is another one's doing. Further hits leave no
  /// records.
  void used_at_rest(const runlog::Event& lease, RegionRef region) override;
  /// Forgets the buffers there and drops their queued items.
  void memory_event(Range range) override;
  void evicted(Range pages, Time now) override;
  void sweep() override;

  void stop_acting() override;
  void act_again() override;
  void keep_all(bool all) override;
  Action next(Time now) override;
  /// False when the memory has gone, or was used, since.
  bool wants(const Action& action) const override {
    if (!buffers_.is_live(action.buffer)) return false;
    const Buffer& buffer = buffers_[action.buffer];
    return action.pages.contains(buffer.pages) && buffer.last_use == action.after;
  }
  Time waits_until(const Action& action) const override;
  void done(const Action& action, RegionRef region, bool ok, Duration took, Time now) override;
  void note_losses(bool any) override { settled_.note_losses(any); }
  bool has_let_go(Range range) const override;
  std::size_t settled_bytes(Time now) override { return settled_.bytes(now); }
  std::vector<runlog::Event> take_runs() override { return settled_.take_runs(); }
  void end_runs(Time now) override { settled_.clear(now); }
  Time next_deadline() const override { return next_deadline(plan_.first_due()); }

  void add_score(runlog::Counters& counters) const override { score_.add_to(counters); }
  std::string profile() const override { return predictor_.profile(); }

  const PredictionScore& score() const { return score_; }
  const RegistrationQueue& queue() const { return plan_; }
  std::size_t buffers() const { return buffers_.size(); }

 private:
  BufferId buffer_of(Range pages);
  void drop(BufferId id);
  /// Enters a use into its buffer.
  void note_use(BufferId id, const runlog::Event& lease, RegionRef region);
  /// Lets the predictor learn from a use of the buffer, before which its thread had waited so long.
  Observed learn(BufferId id, const runlog::Event& lease, Duration delayed, Time last_use, bool continues);
  /// Lets the queue follow the predictor, after a use of buffer `used`.
  void follow_predictor(BufferId used);
  /// Victims of the limits are chosen by the region's next use.
  void expect(RegionRef ref, Time next) { domain_.expect(ref, next == kNever ? 0 : next); }
  /// Plans anew for a buffer whose next use is predicted anew.
  void reconsider(BufferId id);
  /// Queues the buffer for its next use later than `after`, if that is worth it.
  void enqueue(BufferId id, Time after);

  // ---- decisions ----

  /// Takes the queue's first item, which the registration condition calls for. Returns whether it is to be
  /// registered ahead now.
  bool serve_first(Action& action);
  /// Claims the buffer's region for deregistration, or keeps it for a use later than `after`.
  bool let_go(BufferId id, Time after, Time now, Action& action);
  /// Plans the next look at a region that is kept.
  void keep(BufferId id, Time after, Time now, Time meanwhile);
  /// Claims the region for deregistration, if it is idle and its worst cost fits the budget.
  bool claim(RegionRef ref, Time after, Action& action);
  /// Returns true if all uses of the region are unknown, as after a rest of the helper: it stays for the next
  /// one, or until keeping it has cost far more than a late use.
  bool awaits_first_use(BufferId id, Time now);
  /// Wakes the helper when the buffer's next use should be over.
  void listen(BufferId id, Time after, Time now);
  /// The use that the helper woke for is still under way: wakes again, after twice as long each time.
  void listen_on(BufferId id, Time now);

  /// `due`: when the queue's first item is.
  Time next_deadline(Time due) const;

  Domain& domain_;
  Predictor& predictor_;
  Settings settings_;
  CostEstimates& costs_;

  BufferTable buffers_;
  Ledger ledger_;
  Forecast forecast_;
  RegistrationPlan plan_;
  CollapsePlan collapse_;
  SettledRegions settled_;
  PredictionScore score_;

  Deadlines looks_;                  ///< when to look again whether a buffer's region is still worth keeping
  Deadlines overs_;                  ///< when a buffer's next use should be over
  bool keeps_all_ = false;           ///< as there is too little to gain
  std::deque<BufferId> undecided_;   ///< used since the last decision about them
  std::vector<RegionRef> replaced_;  ///< by another region that serves the same buffer
  Time out_of_room_ = kNotYet;       ///< when the limit last made a transfer miss or bounce
};

}  // namespace pinion
