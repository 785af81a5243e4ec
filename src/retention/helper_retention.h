// Retention `helper`: the helper-thread scheme of Li et al. (CF'11), sections 3.2 and 4, as steps.
//
// Owns the helper's view: buffers and their predicted uses, the registration queue, the cost estimates. It
// belongs to one thread (the helper's, or the simulator's); it takes time only from the `now` it is given
// and registration only through a Domain. Its caller makes the device calls: next() returns the action,
// done() takes the result.
//
// Where it goes beyond the paper:
//   - a region that is kept for a use, or registered ahead of it, is let go when the wait has cost as much
//     as a late use would. The wait ends after three of the longest intervals between the buffer's uses
//     (the paper would keep it to the end of the run);
//   - a region is let go only while the RQ has room for it, in addition to its own deadline;
//   - predictions are made on the program's own time, less its waits for registration: an interval that a
//     late transfer has prolonged would announce the next uses too late, and so make the next late transfer;
//   - the sleeping helper's wake-up lateness is a term of t_p;
//   - a predictor that re-anchors is followed: the queue's deadlines move with its predictions, and an item
//     whose time has come is asked for once more before it is served;
//   - a change of memory drops its queued items;
//   - a region is let go only where the time budget has room for its worst cost. The bytes freed must also
//     be worth the likely cost (time_budget.h); the margin before a use grows
//     with that price, from on-demand to leave-pinned;
//   - a region that has always been kept, or seems too dear by few calls, is let go for a trial when
//     keeping it has cost eight times a late use;
//   - a region stays as long as before such a trial where its uses are unknown: their records are missing, or
//     the helper's share was used up;
//   - a buffer that is used again and again, each time sooner than its region could go and come back, is
//     *settled*: decisions about it wait until it rests. Its region carries the mark for the threads, which
//     count its hits in runs (use_runs.h), and the predictor sees a sample of the others;
//   - where the helper's share has room for a deregistration only, the region goes, and the next transfer's
//     thread registers it, within the time budget;
//   - the helper wakes when a transfer that it has registered for should be over, before its next look.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "predict/predictor.h"
#include "registry/domain.h"
#include "retention/cost_estimate.h"
#include "retention/deadlines.h"
#include "retention/helper_share.h"
#include "retention/registration_queue.h"
#include "retention/retention.h"
#include "retention/time_budget.h"

namespace pinion {

/// How good the predictions were: every reuse of a buffer counts, an unpredicted one as
/// wrong.
struct PredictionScore {
  std::uint64_t reuses = 0;
  std::uint64_t within_0_5 = 0, within_5 = 0;  ///< at the last moment it could still act
  std::uint64_t at_release_within_0_5 = 0, at_release_within_5 = 0;  ///< one full reuse ahead
  std::uint64_t late = 0;

  /// Into the counters of the process, which are zero or have another domain's counts.
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
    /// The helper's own work. Null: all is allowed.
    const HelperShare* share = nullptr;
    /// Registered bytes count only where all buffers together are more than were ever registered.
    bool minimize_peak = false;
    /// The name of a call site in predictions, which outlives the run; empty: its number.
    std::function<std::uint64_t(std::uint64_t)> site_name;
  };

  /// `costs` is fed by done(), and by the caller with the device calls of other threads.
  HelperRetention(Domain& domain, Predictor& predictor, CostEstimates& costs, Settings settings);
  /// The same with a predictor of its own.
  HelperRetention(Domain& domain, std::unique_ptr<Predictor> predictor, CostEstimates& costs,
                  Settings settings);

  /// An item of the deregistration queue. next() returns the action that follows. Its waits must have been
  /// charged to the time budget before.
  bool use(const runlog::Event& lease, RegionRef region, Duration delayed) override;
  void ran(const runlog::Event& run) override;
  /// Forgets the buffers there and drops their queued items.
  void memory_event(Range range) override;
  void evicted(Range pages, Time now) override;
  void sweep() override;

  void stop_acting() override;
  void act_again() override;
  Action next(Time now) override;
  /// False when the memory has gone, or was used, since.
  bool wants(const Action& action) const override {
    if (action.buffer >= buffers_.size()) return false;  // of a domain before this one
    const Buffer& buffer = buffers_[action.buffer];
    return buffer.live && action.pages.contains(buffer.pages) && buffer.last_use == action.after;
  }
  Time waits_until(const Action& action) const override;
  void done(const Action& action, RegionRef region, bool ok, Duration took, Time now) override;
  std::size_t settled_bytes(Time now) override;
  Time next_deadline() const override { return next_deadline(first_due()); }

  void add_score(runlog::Counters& counters) const override { score_.add_to(counters); }
  std::string profile() const override { return predictor_.profile(); }

  const PredictionScore& score() const { return score_; }
  const RegistrationQueue& queue() const { return queue_; }
  std::size_t buffers() const { return by_begin_.size(); }

 private:
  static constexpr Time kNotYet = INT64_MIN / 2;
  /// The predictor's last answer for a buffer. The answer holds until the predictor learns, and is needed
  /// several times a use.
  struct Answer {
    std::uint64_t learnt = 0;  ///< uses by then
    Time after = 0;
    Duration worth = -1;  ///< -1: nothing is known
    Estimate next;
  };
  /// Of worth(), the same for all buffers.
  struct Terms {
    double price = -1;
    std::size_t all_pages = 0;
    Duration unseen = 0;
    std::uint64_t observed = 0;  ///< registrations
    bool operator==(const Terms&) const = default;
  };
  /// A buffer's.
  struct Worth {
    std::uint64_t number = 0;  ///< of the terms
    std::size_t entries = 0;
    Duration value = 0;
  };
  struct Buffer {
    bool live = false;
    Range pages{};
    Access access = Access::read;
    std::uint16_t thread = 0;  ///< that used it last
    Time last_use = kNotYet;
    Time busy_until = kNotYet;  ///< the end of its transfers so far
    bool reused = false;        ///< it has had a use before its last
    bool late = false;          ///< its last use, which awaits a decision
    bool tried = false;         ///< it was let go before
    bool by_thread = false;     ///< it was let go for its thread to register
    Time kept_since = kNotYet;  ///< its first use, or when it was last let go
    Duration longest_interval = 0;
    bool settled = false;  ///< by its last use
    Time settled_since = kNotYet;
    std::uint32_t passed = 0;  ///< uses while settled, of which the predictor sees a sample
    Duration pace = 0;         ///< the last interval
    Time predicted_at_release = kNever;
    RegionRef region;
    std::size_t entries = 1;  ///< translation entries that its pages take, as far as is known
    Duration lasts = 0;       ///< its transfers, lately
    Time over = kNever;       ///< when its next use should be over, as the helper was to wake for it
    Duration reserved = 0;    ///< in the time budget, for its next use
    Duration margin = 0;      ///< so long before its next use it is to be registered, by the last plan
    mutable Answer answer;
    mutable Worth worth;
  };
  static constexpr std::size_t kMostBuffers = 16384;

  BufferId buffer_of(Range pages);
  void drop(BufferId id);
  void forget_oldest(BufferId except);
  /// How long the thread had waited before its call, all ranges of a call counted from its beginning: a wait
  /// for one of them comes after the next one's beginning.
  Duration delayed_before(std::uint16_t thread, Time call, Duration delayed);
  /// Enters a use into its buffer.
  void note_use(BufferId id, const runlog::Event& lease, RegionRef region);
  /// After a use of buffer `used`: the queue follows the predictor.
  void follow_predictor(BufferId used);
  /// How long its region must at least be gone, to go at all.
  Duration away(const Buffer& buffer) const;
  /// Whether the buffer is settled, with this use: it came, as those of its thread before, too soon.
  bool settles(const Buffer& buffer, const runlog::Event& lease, RegionRef region);
  /// When the region has rested long enough for a decision, as far as is known now; kNotYet: at once.
  Time rested_at(RegionRef ref, Time now) const;
  /// Decisions about the region wait until then: threads count hits on it in runs.
  void settle(RegionRef ref, Time until);
  /// Of a use that came so long after the one before.
  void keep_score(Time time, Duration interval, Time at_release, Time at_last);
  /// Those that lie in `range`, by address. Good until a buffer comes or goes, or other ranges are asked for.
  const std::vector<BufferId>& buffers_in(Range range) const {
    const Found& found = found_[slot_of(range)];
    return found.changes == changes_ && found.range == range ? found.buffers : find_buffers(range);
  }
  const std::vector<BufferId>& find_buffers(Range range) const;
  std::size_t slot_of(Range range) const {
    return static_cast<std::size_t>(range.begin * 0x9E3779B97F4A7C15ull >> 40) & (found_.size() - 1);
  }
  Duration delay_of(const Buffer& buffer) const;
  /// The buffer's earliest predicted use later than `after`. Good until it is asked for again.
  const Estimate& next_use(BufferId id, Time after) const;
  /// Victims of the limits are chosen by the region's next use.
  void expect(RegionRef ref, Time next);
  /// Its time alone, which is had for less.
  Time next_time(BufferId id, Time after) const;
  /// Of the buffer that has to be ready first, by the margins as they were last; `time` is the earliest.
  Estimate earliest_use(Range region, Time after) const;
  /// `known`: that of buffer `id`, one of them.
  Time earliest_time(Range region, Time after, BufferId id, Time known) const;
  /// Holding so many pages for that long is as bad as one late transfer of them. Such a transfer registers so
  /// many translation entries, and leaves them registered until the next look.
  Duration worth(std::size_t pages, std::size_t entries) const;
  double price() const { return settings_.budget ? settings_.budget->price() : TimeBudget::kPrice; }
  Duration worth(const Buffer& buffer) const;
  /// From now on by the terms of now.
  void note_terms();
  /// How long before its use the helper must begin to register a buffer.
  Duration lead(std::size_t entries) const;
  /// Plans anew for a buffer whose next use is predicted anew.
  void reconsider(BufferId id);
  /// For its next use later than `after`, if that is worth it.
  void enqueue(BufferId id, Time after);
  /// The deregistration condition for a region of so many translation entries whose earliest deadline is
  /// `deadline`.
  bool may_deregister(std::size_t entries, Time deadline, Time now) const;
  /// Claims the buffer's region for deregistration, or keeps it for a use later than `after`.
  bool let_go(BufferId id, Time after, Time now, Action& action);
  /// Whether to let the buffer go although it seems too dear: its cost is unknown, as it has always stayed or
  /// the estimate is doubted, and keeping it has cost far more than a late use. `worth`: the region's.
  bool worth_a_trial(const Buffer& buffer, Duration worth, Time now) const;
  /// The cost of one use of each buffer of the region, when this region is gone, beyond the time reserved for
  /// it.
  Duration worst_cost(RegionRef ref) const { return std::max<Duration>(more_reserved(ref), 0); }
  /// The same; negative where less than that is needed now.
  Duration more_reserved(RegionRef ref) const;
  /// Whether the region's pages, free until the use, are worth the likely loss: `worth` is the region's.
  bool worth_it(const Buffer& buffer, Duration worth, const Estimate& next, Time now) const;
  bool share_binds() const { return settings_.share && settings_.share->binds(); }
  /// Whether the helper's share has room for the region to go until then and come back.
  bool affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const;
  /// Whether it has room to let the region go, and that is worth a late transfer: `worth` is the region's.
  bool affords_by_thread(std::size_t pages, std::size_t entries, Duration worth, const Estimate& next,
                         Time now) const;
  /// Seconds of holding everything that are saved while so many pages are gone.
  double freed(std::size_t pages, Duration gone) const;
  /// Whether a late transfer, if the use comes, is worse than having the region in vain, if the use
  /// stays away.
  bool worth_registering(const Buffer& buffer, const Estimate& next) const;
  /// Whether all buffers together fit below the peak, and their set counts as complete.
  bool all_fit() const;
  void look_at_peak();
  static bool served_elsewhere(const Buffer& buffer, RegionRef than);
  void give_back(Buffer& buffer);
  /// Claims the region for deregistration, if it is idle and its worst cost fits the budget.
  bool claim(RegionRef ref, Time after, Action& action);
  /// The next uses of the region's buffers register them. The region is claimed.
  void leave_to_threads(RegionRef ref);
  /// All uses of the region are unknown, as after a rest of the share: it stays for the next one, or until
  /// keeping it has cost as much as may be for a trial.
  bool awaits_first_use(BufferId id, Time now);
  /// A late use comes unawaited, so the helper sees it only now.
  void learn_unseen(Buffer& buffer, Time now);
  /// How long after its predicted use a region is kept for it: until that has cost as much as a late use
  /// would.
  Duration patience(const Buffer& buffer) const;
  /// Wakes the helper when the buffer's next use should be over.
  void listen(BufferId id, Time after, Time now);
  /// The use that the helper woke for is still under way: wakes again, after twice as long each time.
  void listen_on(BufferId id, Time now);
  /// The earliest `now` at which the registration condition calls for the RQ's first item; kNever: the RQ is
  /// empty.
  Time first_due() const;
  /// first_due() or an earlier deadline.
  Time next_deadline(Time first_due) const;
  /// The terms of the registration condition: one item of the RQ and one of the DQ.
  Duration service_time(std::size_t entries) const;

  Domain& domain_;
  const std::unique_ptr<Predictor> own_predictor_;  ///< null where it is another's
  Predictor& predictor_;
  Settings settings_;
  CostEstimates& costs_;

  std::vector<Buffer> buffers_;
  struct Thread {
    Time call = kNotYet;   ///< the last one's beginning
    Duration delayed = 0;  ///< how long registration had held it up by then
    unsigned soon = 0;     ///< uses in a row that came too soon for a decision, up to a run
  };
  std::vector<Thread> threads_ = std::vector<Thread>(1);  ///< a fresh buffer's thread is the first
  std::vector<BufferId> free_ids_;
  std::map<std::pair<Address, Address>, BufferId> by_begin_;
  std::uint64_t changes_ = 0;  ///< of by_begin_
  /// An answer of buffers_in(): each use needs that of one region several times.
  struct Found {
    std::uint64_t changes = UINT64_MAX;
    Range range{};
    std::vector<BufferId> buffers;
  };
  mutable std::vector<Found> found_{64};  ///< by slot_of(); a power of two, as many as buffers at least
  RegistrationQueue queue_;
  Deadlines looks_;                  ///< when to look again whether a buffer's region is still worth keeping
  Deadlines overs_;                  ///< when a buffer's next use should be over
  std::deque<BufferId> undecided_;   ///< used since the last decision about them
  std::vector<RegionRef> replaced_;  ///< by another region that serves the same buffer
  struct Settled {
    RegionRef region;
    Time until;
  };
  std::vector<Settled> settled_;
  std::size_t largest_pages_ = 1;  ///< of any buffer so far
  std::size_t all_pages_ = 0;      ///< of all buffers
  Terms terms_;
  std::uint64_t terms_number_ = 1;                 ///< counts their changes
  std::uint64_t learnt_ = 0;                       ///< uses so far: predictions change only with it
  Duration unseen_ = 0;                            ///< from the end of a late use to the next look, lately
  Time out_of_room_ = kNotYet;                     ///< when the limit last made a transfer miss or bounce
  std::size_t peak_ = 0;                           ///< most bytes registered at a decision
  bool fitted_ = false;                            ///< all_fit(), at the last decision
  std::uint64_t grown_at_ = 0;                     ///< uses by the first one of the newest buffer
  RecentLargest<std::size_t, 1> item_entries_{1};  ///< of one item of the DQ, to deregister
  std::size_t forget_beyond_ = kMostBuffers;
  PredictionScore score_;
};

}  // namespace pinion
