// The helper's desk: records and decisions of all domains of a process. Records come in, are learnt from and
// leave as events for the log. Jobs (device calls) go out one at a time; done() ends each. The engine's
// helper and the simulated one work at the same desk: the one makes the calls and sleeps, the other lets
// virtual time pass.
//
// Owns the time budget and the schedule of looks at the records. add() may be called by
// any thread, one at a time; everything else belongs to the helper's thread (or the simulator's).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "registry/budget.h"
#include "registry/domain.h"
#include "retention/costs.h"
#include "retention/record.h"
#include "retention/retention.h"
#include "retention/shortage.h"

namespace pinion {

/// Schedules the sleeping helper's looks at its rings, if they come before retention's next deadline: dense
/// records bring the looks closer together.
class LookSchedule {
 public:
  /// `poll`: the longest sleep while communication is dense.
  LookSchedule(Duration poll, Time now) : poll_(poll), last_record_(now) {}

  /// The rings were looked at, and there was something.
  void found(Time now) {
    const Duration gap = now - last_record_;
    gap_ = gap_ ? (3 * gap_ + gap) / 4 : gap;
    last_record_ = now;
  }

  /// The next record wakes the helper itself: records come seldom, or the last one is long past.
  bool deep(Time now) const { return gap_ > seldom() || now - last_record_ >= kLongAgo; }

  /// A look at `until` is farther off than where communication is dense.
  bool far(Time now, Time until) const { return until - now > poll_; }

  /// The next look: after `least` or later, but at `deadline` at the latest. `undecided_bytes`:
  /// registered, and to be let go as records come.
  Time next(Time now, Time deadline, std::size_t undecided_bytes, Duration least = 0) const {
    // A record pushed just while the helper falls asleep may miss that it should wake it: seen at the latest
    // by then.
    if (deep(now)) return std::min(deadline, now + kLongestSleep);
    const Duration sleep = within(deadline == kNever ? kNever : deadline - now, undecided_bytes, now);
    return std::min(deadline, now + std::max(sleep, least));
  }

  // ---- where only the log waits for records, and the rings hold them ----

  /// The rings were looked at; `filling`: one of them is more than a quarter full.
  void pace(bool filling) {
    log_look_ = std::clamp(filling ? log_look_ / 2 : log_look_ * 2, poll_, kLongestSleep);
  }
  Time next_for_log(Time now, Time deadline) const { return std::min(deadline, now + log_look_); }

  // ---- where all cores are busy ----

  /// Wake-ups wait for the next beat of the node's clock: one serves all decisions of a beat, and the helpers
  /// of a node take their cores at the same time, so that their delays overlap. `bounded`: few are
  /// affordable.
  Duration beat(bool bounded) const { return poll_ / (bounded ? 2 : 4); }
  static Time at_beat(Time wake, Duration beat) {
    return beat <= 0 || wake == kNever ? wake : (wake + beat - 1) / beat * beat;
  }

  // ---- beside the records ----

  /// Returns the time from one update of the run's figures to the next: the older the run, the less an update
  /// changes.
  static Duration between_updates(Duration age) {
    return std::clamp(age / kLooksPerTime, 200 * kMillisecond, kSecond);
  }

  /// Memory that was unmapped under its registration stays pinned until the next look: so much of it calls
  /// for one at once.
  static constexpr std::size_t kMuchDoomed = std::size_t{1} << 20;

 private:
  /// A wake-up by a record costs far less than looks in such a gap, however far apart.
  Duration seldom() const { return poll_ * kLooksPerTime * kLooksPerTime; }

  Duration within(Duration until_deadline, std::size_t undecided_bytes, Time now) const {
    const Duration look = std::max(gap_ / kLooksPerTime, poll_);
    if (until_deadline == kNever || undecided_bytes > 0) return look;
    // The next chance to let a region go is the next deadline: looks come nearer as it does.
    return std::clamp(until_deadline / 2, look, std::max({look, gap_ / 2, (now - last_record_) / 2}));
  }

  Duration poll_;
  Time last_record_;
  Duration gap_ = 0;                  ///< typical time between batches of records
  Duration log_look_ = kMillisecond;  ///< longer while the rings fill slowly
};

class Desk {
 public:
  struct Settings {
    RetentionTraits traits;
    TimeBudget::Settings time_budget;
    MinimumGain::Settings minimum_gain = {};
    Calibration scale;  ///< of the records' ticks; the default is for ticks of 1 ns
    Duration poll = kMillisecond;
    Time start = 0;
  };
  explicit Desk(const Settings& settings)
      : traits_(settings.traits),
        scale_(settings.scale),
        time_budget_(settings.time_budget, settings.start),
        minimum_gain_(settings.minimum_gain),
        looks_(settings.poll, settings.start) {
    set_core_idle(settings.time_budget.core_idle);
  }

  /// The next domain. Records name it by its number, from 0. It outlives the desk.
  void add(KeptDomain& domain);

  TimeBudget& time_budget() { return time_budget_; }
  const TimeBudget& time_budget() const { return time_budget_; }
  void set_core_idle(bool idle);

  // ---- records, in order of their end ----

  /// Learns from a record and returns its event, complete. `leave_pinned`: the record's
  /// meaning under that strategy.
  runlog::Event take(const TakenRecord& taken, const UnderLeavePinned& leave_pinned);
  /// Some records were lost or omitted at release.
  void sweep();
  /// The rings were looked at, and there was something.
  void found(Time now) { looks_.found(now); }
  /// So much memory has changed that it wakes the helper, leave-pinned's too.
  void woken_to_reap() { woken_to_reap_ = true; }
  /// The rings were looked at: whether they might soon be full.
  void pace(bool filling) { looks_.pace(filling); }

  // ---- jobs ----

  /// Device calls that belong together, all in one domain.
  struct Job {
    enum class Kind {
      none,            ///< no job now
      deregister,      ///< deregister `regions`; they are claimed
      register_ahead,  ///< run a ticket without lease for the pages and access of `action`
    };
    Kind kind = Kind::none;
    KeptDomain* in = nullptr;
    std::vector<Region*> regions;
    Retention::Action action;
    bool decided = false;  ///< by the retention, which learns of its end
    bool swapped = false;  ///< for want of room (Swap)
    bool reaps = false;    ///< the memory has changed: leave-pinned deregisters it, too
  };
  /// The most urgent job: doomed regions, then the share of other processes, then what goes while memory is
  /// short (PressureRelease), then registrations ahead that wait for room (Swap), then decisions of
  /// retention. `attend()` is called before the second: the moment to look at the node, and to call share()
  /// and see_memory().
  template <class Attend>
  Job next(Time now, Attend&& attend) {
    Job job = next_to_reap();
    if (job.kind == Job::Kind::none) {
      attend();
      job = next_to_share();
    }
    if (job.kind == Job::Kind::none) job = next_under_pressure(now);
    if (job.kind == Job::Kind::none) job = next_decided(now);
    only_looked_ = only_looked_ && job.kind == Job::Kind::none;
    return job;
  }
  /// The job is done. `region`: the one that was registered ahead. `took`: the last device call that
  /// succeeded.
  void done(const Job& job, RegionRef region, bool ok, Duration took, Time now);

  /// The process may hold so many bytes, and have so many at hand beyond them: idle regions go for that, then
  /// the budget gives back its reserve. `binds`: its part of the node's limit is less than it would hold.
  void share(Budget& budget, std::uint64_t hold_at_most, std::uint64_t at_hand, bool binds);
  /// The node was looked at: whether it is short of memory. Idle regions go that take what Limits leaves
  /// free.
  void see_memory(Budget& budget, bool is_short);
  /// Sets whether the process has a helper that acts, and how long it may have to wait for its core.
  /// Without one, registrations stay and learning stops.
  void set_helper(bool has_helper, Duration turn);
  /// Ends registering ahead and keeping by decision.
  void stop_acting();

  // ---- sleep ----

  /// Notes, before each decision, the CPU that the helper has used since its start; modelled device time
  /// counts as such.
  void used(Duration cpu, Time now);

  /// Uses are learnt from.
  bool learning() const { return traits_.predicts && has_helper_; }
  /// Records are looked at in time for decisions about them.
  bool acting() const { return acts() && has_helper_ && minimum_gain_.reached(); }
  /// The time of the next decision, if records stay away.
  Time next_deadline() const;
  /// Returns when the helper looks again: at the next deadline at the latest.
  Time next_look(Time now) const;
  /// The next record wakes the helper: they come seldom, and are decided about.
  bool deep(Time now) const { return acting() && !time_budget_.resting() && looks_.deep(now); }
  /// The next look is so far off that an unforeseen transfer (record.h) wakes the helper. Else the region
  /// that the transfer has registered would be held until that look.
  bool alert(Time now, Time until) const {
    return acting() && !time_budget_.resting() && looks_.far(now, until);
  }
  void woke_late(Duration late);

  /// Adds the scores of all domains, and the time budget of a retention that acts.
  void add_to(runlog::Counters& counters, Time now);

 private:
  struct Sharing {
    Budget* budget;
    std::uint64_t hold_at_most, at_hand;
    int next;  ///< domain that may have to shrink
  };

  int count() const { return count_.load(std::memory_order_acquire); }
  std::span<KeptDomain* const> all() const { return {domains_.data(), static_cast<std::size_t>(count())}; }
  /// The retention acts, and there is a domain to act in.
  bool acts() const { return traits_.acts && registers_.load(std::memory_order_relaxed); }
  KeptDomain& kept(int number) const { return *domains_[static_cast<std::size_t>(number)]; }
  /// Looks whether the limits bind, and whether there is enough to gain.
  void see_limits(const Budget& budget);
  void learn_lease(const Record& record, runlog::Event& event, const UnderLeavePinned& leave_pinned);
  void learn_registration(const Record& record, Duration took, const UnderLeavePinned& leave_pinned);
  /// A transfer has waited so long: looks whether that is the limit's doing.
  void see_wait(const Record& record, const UnderLeavePinned& leave_pinned);
  /// Decides whether there is a goal for the peak, and grants it what is left of the time budget.
  void grant_peak_goal();
  /// Returns when the pending work alone calls for a look.
  Time next_occasion(Time now) const;
  Job next_to_reap();
  Job next_to_share();
  Job next_under_pressure(Time now);
  Job next_decided(Time now);
  /// Bytes that may be let go as records come.
  std::size_t undecided_bytes(Time now) const;

  const RetentionTraits traits_;
  const Calibration scale_;
  TimeBudget time_budget_;
  MinimumGain minimum_gain_;
  Duration longest_trip_ = 0;   ///< a region's registration and deregistration, expected
  bool only_looked_ = true;     ///< since used()
  bool woken_to_reap_ = false;  ///< since used()
  LookSchedule looks_;
  Duration beat_ = 0;  ///< of wake-ups; 0: each at its own time
  std::array<KeptDomain*, runlog::kMaxDomains> domains_{};
  std::atomic<int> count_{0};
  std::atomic<bool> registers_{false};  ///< a domain that registers has been added
  std::optional<Sharing> sharing_;      ///< still to be done
  bool part_binds_ = false;             ///< of the node's limit
  std::vector<Range> shrunk_;           ///< by the job for it, or under pressure, that is under way
  PressureRelease release_;
  Swap swap_;
  SparedWork spared_{time_budget_};
  bool has_helper_ = true;
  bool stopped_ = false;
};

}  // namespace pinion
