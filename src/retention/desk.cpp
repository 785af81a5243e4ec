#include "retention/desk.h"

#include <algorithm>
#include <utility>

namespace pinion {

namespace {

Desk::Job job_of(KeptDomain& in, const Retention::Action& action) {
  Desk::Job job{
      .kind = Desk::Job::Kind::register_ahead, .in = &in, .regions = {}, .action = action, .decided = true};
  if (action.kind == Retention::Action::Kind::deregister) {
    job.kind = Desk::Job::Kind::deregister;
    job.regions = {action.region};
  }
  return job;
}

/// Returns whether the helper may begin work that nothing is reserved for.
bool may_begin(const TimeBudget& budget) { return !budget.binds_helper() || budget.fits(); }

}  // namespace

void Desk::add(KeptDomain& domain) {
  const int number = count();
  domain.number = number;
  domains_[static_cast<std::size_t>(number)] = &domain;
  if (!domain.observed) registers_.store(true, std::memory_order_relaxed);
  count_.store(number + 1, std::memory_order_release);
}

// ---- records ----

runlog::Event Desk::take(const TakenRecord& taken, const UnderLeavePinned& leave_pinned) {
  const Record& record = taken.record;
  runlog::Event event = event_of(taken, scale_);
  const Range range{record.address, record.address + record.bytes};
  // The duration of the device call on a core of its own.
  const Duration took = event.end_ns - event.begin_ns - record.preempted();
  const bool failed = (event.flags & runlog::kFailed) != 0;
  time_budget_.leave_pinned_waited(leave_pinned.wait);
  switch (event.kind) {
    case runlog::EventKind::lease:
      learn_lease(record, event, leave_pinned);
      break;
    case runlog::EventKind::registration:
      if (!failed) learn_registration(record, took, leave_pinned);
      break;
    case runlog::EventKind::deregistration:
      if (failed) break;
      kept(record.domain).costs.deregistration.observe(record.entries(), took);
      spared_.gone(kept(record.domain), range);
      if (kept(record.domain).domain->has_been_short()) minimum_gain_.see_shortage();
      kept(record.domain).retention->evicted(range, event.end_ns);
      break;
    case runlog::EventKind::memory_event:
      for (int i = 0; i < count(); ++i) kept(i).retention->memory_event(pages_touched(range));
      break;
    default:  // nothing to learn from
      break;
  }
  return event;
}

void Desk::learn_registration(const Record& record, Duration took, const UnderLeavePinned& leave_pinned) {
  CostEstimates& costs = kept(record.domain).costs;
  const std::size_t pages = Range{record.address, record.address + record.bytes}.pages();
  // The first touch of pages makes their registration take far longer than any later one.
  if (leave_pinned.fresh_bytes == 0 || took < costs.registration.expected(record.entries()))
    costs.registered(pages, record.entries(), took);
  else
    costs.entries_a_page.observe(pages, record.entries());
  longest_trip_ = std::max(longest_trip_, costs.registration.expected(record.entries()) +
                                              costs.deregistration.expected(record.entries()));
}

void Desk::see_limits(const Budget& budget) {
  std::uint64_t pages = 0, regions = 0;
  double entries = 0;
  for (int i = 0; i < count(); ++i) {
    pages += kept(i).once.pages;
    entries += static_cast<double>(kept(i).once.pages) * kept(i).costs.entries_a_page.value();
    regions += kept(i).once.calls;
  }
  const Limits& limits = budget.limits();
  const bool binds = part_binds_ || pages > limits.bytes / page_size() || regions > limits.regions;
  time_budget_.set_limit_binds(binds);
  if (binds) return minimum_gain_.see_shortage();
  if (pages > 0) minimum_gain_.see(pages * page_size(), limits.bytes, entries / static_cast<double>(pages));
}

void Desk::see_wait(const Record& record, const UnderLeavePinned& leave_pinned) {
  const Range range{record.address, record.address + record.bytes};
  const bool evicted = time_budget_.limit_binds() && leave_pinned.fresh_bytes == 0 &&
                       !kept(record.domain).retention->has_let_go(range);
  if (evicted || record.outcome == runlog::Outcome::bounced)
    time_budget_.leave_pinned_waited(scale_.to_duration(record.wait) - leave_pinned.wait);
}

void Desk::learn_lease(const Record& record, runlog::Event& event, const UnderLeavePinned& leave_pinned) {
  const Duration delayed = scale_.to_duration(record.delayed);
  kept(record.domain).once.add(leave_pinned);
  if (leave_pinned.fresh_bytes != 0) see_limits(kept(record.domain).domain->budget());
  if (event.outcome == runlog::Outcome::bounced)
    minimum_gain_.see_shortage();
  else
    spared_.used(kept(record.domain), {record.address, record.address + record.bytes});
  if (record.wait != 0) see_wait(record, leave_pinned);
  if (!has_helper_) return;
  if (acts() && time_budget_.resting())
    return kept(record.domain).retention->used_at_rest(event, record.region());
  if (kept(record.domain).retention->use(event, record.region(), delayed)) event.flags |= runlog::kLate;
}

void Desk::sweep() {
  for (int i = 0; i < count(); ++i) kept(i).retention->sweep();
}

// ---- jobs ----

Desk::Job Desk::next_to_reap() {
  for (int i = 0; i < count(); ++i) {
    if (Region* doomed = kept(i).domain->begin_reap())
      return {
          .kind = Job::Kind::deregister, .in = &kept(i), .regions = {doomed}, .action = {}, .reaps = true};
  }
  return {};
}

Desk::Job Desk::next_to_share() {
  while (sharing_ && sharing_->next < count() && sharing_->budget->bytes() > sharing_->hold_at_most) {
    KeptDomain& in = kept(sharing_->next++);
    std::vector<Region*> victims = in.domain->begin_shrink(sharing_->hold_at_most);
    shrunk_.clear();
    for (const Region* victim : victims) shrunk_.push_back(victim->range());
    if (!victims.empty())
      return {.kind = Job::Kind::deregister, .in = &in, .regions = std::move(victims), .action = {}};
  }
  if (sharing_) sharing_->budget->give_back(sharing_->at_hand + swap_.makes_room());
  sharing_.reset();
  return {};
}

Desk::Job Desk::next_under_pressure(Time now) {
  const auto [in, region] = release_.next(all(), scale_, now);
  if (in == nullptr) return {};
  shrunk_ = {region->range()};
  return {.kind = Job::Kind::deregister, .in = in, .regions = {region}, .action = {}};
}

Desk::Job Desk::next_decided(Time now) {
  using Kind = Retention::Action::Kind;
  // Swaps in vain have used the budget up.
  if (time_budget_.resting()) swap_.give_up();
  const bool fits = may_begin(time_budget_);
  if (const auto [in, action] = swap_.next(all(), now, fits); in) {
    Job job = job_of(*in, action);
    job.swapped = true;
    return job;
  }
  for (KeptDomain* in : all()) {
    in->costs.wake.set_beat(beat_);
    in->retention->keep_all(acts() && !minimum_gain_.reached());
    // Regions that the limit has evicted lack a reservation.
    const auto left_to_its_use = [&](const Retention::Action& action) {
      return action.kind == Kind::register_ahead &&
             (release_.is_short() || !(fits || in->retention->has_let_go(action.pages)));
    };
    Retention::Action action = in->retention->next(now);
    for (; left_to_its_use(action); action = in->retention->next(now))
      in->retention->done(action, {}, false, 0, now);
    if (action.kind != Kind::sleep) return job_of(*in, action);
  }
  return {};
}

void Desk::done(const Job& job, RegionRef region, bool ok, Duration took, Time now) {
  if (job.reaps) time_budget_.leave_pinned_did(took);
  if (!job.decided) {
    for (const Range pages : std::exchange(shrunk_, {})) job.in->retention->evicted(pages, now);
    return;
  }
  if (!ok && !time_budget_.resting() && swap_.take_up(*job.in, job.action, now)) return;
  if (job.kind == Job::Kind::deregister) spared_.gone(*job.in, job.action.pages);
  if (ok && (time_budget_.limit_binds() || (job.swapped && !job.in->domain->budget().peak_goal().pursued())))
    spared_.made(*job.in, job.action, took);
  job.in->retention->done(job.action, region, ok, took, now);
}

void Desk::share(Budget& budget, std::uint64_t hold_at_most, std::uint64_t at_hand, bool binds) {
  sharing_ = Sharing{&budget, hold_at_most, at_hand, 0};
  part_binds_ = binds;
  see_limits(budget);
}

void Desk::see_memory(Budget& budget, bool is_short) {
  budget.set_memory_short(is_short);
  release_.see(is_short);
  const std::uint64_t most = budget.limits().idle_bytes;
  if (!sharing_ && budget.bytes() > most) sharing_ = Sharing{&budget, most, budget.bytes() / 4, 0};
  if (!is_short) return;
  minimum_gain_.see_shortage();
  swap_.give_up();
}

void Desk::set_helper(bool has_helper, Duration turn) {
  has_helper_ = has_helper || !acts();
  for (int i = 0; i < count(); ++i) {
    kept(i).costs.wake.set_turn(turn);
    if (!has_helper_)
      kept(i).retention->stop_acting();
    else if (acts() && !stopped_ && !kept(i).observed)
      kept(i).retention->act_again();
  }
}

void Desk::stop_acting() {
  stopped_ = true;
  for (int i = 0; i < count(); ++i) kept(i).retention->stop_acting();
}

// ---- sleep ----

void Desk::set_core_idle(bool idle) {
  time_budget_.set_core_idle(idle);
  beat_ = idle ? 0 : looks_.beat(time_budget_.binds_helper());
}

Time Desk::next_look(Time now) const { return LookSchedule::at_beat(next_occasion(now), beat_); }

Time Desk::next_occasion(Time now) const {
  const Time deadline = next_deadline();
  // Other strategies decide on the application's threads: only the log waits for records, and the rings hold
  // them.
  if (!acting()) return looks_.next_for_log(now, deadline);
  if (!acts()) return looks_.next(now, deadline, undecided_bytes(now));
  return looks_.next(now, deadline, undecided_bytes(now), time_budget_.least_sleep());
}

void Desk::used(Duration cpu, Time now) {
  const bool rested = time_budget_.resting();
  // At rest there is nothing else to do.
  if (std::exchange(woken_to_reap_, false) && rested) time_budget_.leave_pinned_used(cpu);
  time_budget_.used(cpu, std::exchange(only_looked_, true), now);
  if (rested && !time_budget_.resting()) sweep();  // after uses that learning skipped
  grant_peak_goal();
}

void Desk::grant_peak_goal() {
  if (count() == 0 || !acts()) return;
  Budget& budget = kept(0).domain->budget();
  PeakGoal& goal = budget.peak_goal();
  const Duration trip = time_budget_.lost(longest_trip_);
  // A program's first peak stays its peak, and comes before its share of the time is enough. With four trials
  // the first loops over FT's buffers use the least up, and with eight each pattern's peak is an oracle's.
  const bool cheap = time_budget_.bounded() && kTrials * trip <= time_budget_.least();
  // A limit that binds keeps the peak below it, and a node's is shared by need, which a goal would hide.
  goal.pursue(cheap && minimum_gain_.reached() && !time_budget_.limit_binds() && !budget.is_shared());
  if (!goal.pursued()) return;
  // Regions of any domain may go for it.
  double a_page = 0;
  for (const KeptDomain* in : all()) a_page = std::max(a_page, in->costs.a_page());
  // The helper may spend, too, until it comes here again.
  const Duration granted = std::max<Duration>(time_budget_.free() - 2 * trip, 0);
  goal.grant(static_cast<double>(granted) / a_page);
}

Time Desk::next_deadline() const {
  // Else a record of a use comes first.
  Time deadline = may_begin(time_budget_) ? swap_.next_deadline() : kNever;
  for (int i = 0; i < count(); ++i) deadline = std::min(deadline, kept(i).retention->next_deadline());
  return deadline;
}

void Desk::woke_late(Duration late) {
  for (int i = 0; i < count(); ++i) kept(i).costs.wake.observe(late);
}

std::size_t Desk::undecided_bytes(Time now) const {
  std::size_t bytes = 0;
  for (int i = 0; i < count(); ++i) {
    const std::size_t registered = kept(i).domain->registered_bytes();
    bytes += registered - std::min(registered, kept(i).retention->settled_bytes(now));
  }
  return bytes;
}

void Desk::add_to(runlog::Counters& counters, Time now) {
  for (int i = 0; i < count(); ++i) kept(i).retention->add_score(counters);
  release_.add_to(counters);
  counters.helper_charged_ns = static_cast<std::uint64_t>(time_budget_.by_helper());
  if (!acts()) return;
  if (!minimum_gain_.reached() && count() > 0)
    counters.kept_all_below_bytes =
        minimum_gain_.in_force(kept(0).domain->budget().limits().bytes, kept(0).costs.entries_a_page.value());
  time_budget_.advance(now);
  counters.budget_ns = static_cast<std::uint64_t>(time_budget_.allowed());
  counters.budget_on_threads_ns = time_budget_.on_threads();
  counters.budget_refused = time_budget_.refused();
}

}  // namespace pinion
