#include "simulate/helper.h"

#include <algorithm>

namespace pinion::simulate {

namespace {

/// Looks that find nothing while the run grows to e times its age.
constexpr int kLooksPerAge = 8192;

}  // namespace

void WakeUps::plan(Time wake) {
  if (at_ == wake && planned_) return;
  at_ = wake;
  planned_ = wake != kNever;
  ++plans_;
  if (!planned_) return;
  Time at = std::max(wake, events_.now()) + settings_.wake_latency();
  if (settings_.turn_after) at = settings_.turn_after(at);
  events_.schedule(at, Event::What::helper_wakes, false, plans_);
}

Duration WakeUps::come() {
  planned_ = false;
  return events_.now() - std::exchange(at_, kNever);
}

SimulatedHelper::SimulatedHelper(const ProcessSettings& settings, Events& events, Domains& domains,
                                 Calls& calls, Observer& observer, runlog::Counters& counters,
                                 std::function<node::NodeTable::Post()> standing)
    : settings_(settings),
      events_(events),
      domains_(domains),
      calls_(calls),
      observer_(observer),
      counters_(counters),
      standing_(std::move(standing)),
      desk_({.traits = traits_of(settings.retention),
             .time_budget = settings.time_budget,
             .minimum_gain = settings.minimum_gain,
             .scale = {},
             .poll = std::max<Duration>(settings.poll, 1),
             .start = settings.start}),
      ring_(settings.ring),
      wake_ups_(settings, events) {
  if (!settings.room) return;
  attendance_.emplace(*settings.room, settings.look_every);
  wake_ups_.plan(settings.start);
}

void SimulatedHelper::set_helper(bool has_helper, Duration turn) {
  const bool acted = desk_.acting();
  desk_.set_helper(has_helper, turn);
  if (desk_.acting() && !acted && !busy_) wake_ups_.plan(events_.now());
}

void SimulatedHelper::notify(const Noticed& noticed) {
  const Time now = events_.now();
  const bool memory_event = noticed.taken.record.kind == runlog::EventKind::memory_event;
  if (!memory_event && !desk_.learning()) return;
  if (!memory_event && !desk_.acting()) {
    take(noticed);  // it only learns, whenever it looks
    if (desk_.acting() && !busy_) wake_ups_.plan(now);
    return;
  }
  if (!ring_.push(noticed)) ++counters_.records_dropped;
  if (busy_) return;
  const bool filling = ring_.filling() || doomed_bytes_ >= LookSchedule::kMuchDoomed;
  const bool alarms = alert_ && is_unforeseen(noticed.taken.record);
  if (settings_.poll == 0 || filling || alarms || desk_.deep(now)) {
    wake_ups_.plan(std::min(wake_ups_.at(), now));
  } else if (!wake_ups_.planned()) {
    wake_ups_.plan(now + settings_.poll);
  }
}

void SimulatedHelper::computes(Duration took) {
  cpu_ += took;
  if (settings_.delays_threads == 0 || took == 0) return;
  events_.delay_application(static_cast<Duration>(static_cast<double>(took) * settings_.delays_threads));
}

void SimulatedHelper::wake_up(std::uint32_t number) {
  if (!wake_ups_.counts(number)) return;
  const Duration slept = events_.now() - put_off_.since;
  const Duration looks = put_off_.apart > 0 ? std::max<Duration>(slept / put_off_.apart, 1) : 1;
  counters_.helper_wakeups += static_cast<std::uint64_t>(looks);
  computes(looks * settings_.helper_cpu.wake);
  desk_.woke_late(wake_ups_.come());
  act();
}

void SimulatedHelper::drain() {
  if (!ring_.waiting().empty()) desk_.found(events_.now());
  desk_.time_budget().waited(delayed_);
  if (!desk_.time_budget().resting())
    computes(static_cast<Duration>(ring_.waiting().size()) * settings_.helper_cpu.record);
  for (const Noticed& noticed : ring_.waiting()) take(noticed);
  ring_.clear();
  if (doomed_bytes_ >= LookSchedule::kMuchDoomed) desk_.woken_to_reap();
  doomed_bytes_ = 0;
  if (ring_.lost()) desk_.sweep();
}

void SimulatedHelper::take(const Noticed& noticed) {
  const runlog::Event event = desk_.take(noticed.taken, noticed.leave_pinned);
  log(event);
  if (event.flags & runlog::kLate) observer_.found_late(noticed.number);
}

void SimulatedHelper::log_runs() {
  for (const Domains::OwnDomain& own : domains_.all())
    for (const runlog::Event& run : own.kept.retention->take_runs()) log(run);
}

void SimulatedHelper::log(runlog::Event event) {
  runlog::note_pages(event, [this](Range range) { return domains_.large_around(range); });
  observer_.logged(event);
}

void SimulatedHelper::act() {
  busy_ = true;
  drain();
  const Time now = events_.now();
  job_ = desk_.next(now, [&] {
    desk_.used(cpu_, now);
    attend();
  });
  switch (job_.kind) {
    case Desk::Job::Kind::none:
      log_runs();
      return sleep();
    case Desk::Job::Kind::deregister:
      return calls_.retire(Calls::kHelper, job_.regions);
    case Desk::Job::Kind::register_ahead: {
      const CostEstimates& costs = job_.in->costs;
      const Range pages = job_.action.pages;
      return calls_.acquire(
          Calls::kHelper, {.pages = pages,
                           .large = domains_.large_around(pages),
                           .access = job_.action.access,
                           .lease = false,
                           .expected = costs.registration.expected(costs.entries_a_page.of(pages.pages()))});
    }
  }
}

void SimulatedHelper::acquired(std::uint32_t number, AcquireStep step) {
  const Call& made = calls_.call(number);
  const bool ok = step == AcquireStep::leased;
  Region* const region = made.acquisition->result().region;
  const RegionRef ref = ok ? RegionRef{region, region->generation()} : RegionRef{};
  desk_.done(job_, ref, ok, made.registration_took, events_.now());
  // The registry's own step must be through.
  events_.schedule(events_.now(), Event::What::helper_acts, false, 0);
}

void SimulatedHelper::retired(std::uint32_t) {
  const Time now = events_.now();
  Retention::Action& action = job_.action;
  if (action.collapse.empty()) return done_deregistering(now);
  action.collapsed.took = domains_.hugepages().begin_collapse(action.collapse);
  computes(action.collapsed.took);
  desk_.time_budget().worked(action.collapsed.took);
  events_.schedule(now + action.collapsed.took, Event::What::collapsed, false, 0);
}

void SimulatedHelper::collapsed() {
  job_.action.collapsed.bytes = job_.action.collapsed.made = domains_.hugepages().end_collapse();
  done_deregistering(events_.now() - job_.action.collapsed.took);
}

void SimulatedHelper::done_deregistering(Time gone) {
  desk_.done(job_, {}, true, gone - calls_.call(Calls::kHelper).device_begin, gone);
  act();
}

void SimulatedHelper::attend() {
  const Time now = events_.now();
  if (!attendance_ || !attendance_->due(now, counters_.acquires - attended_)) return;
  attended_ = counters_.acquires;
  std::size_t self = 0;
  const std::vector<node::NodeTable::Member> members = attendance_->attend(now, standing_(), self);
  Budget& budget = domains_.budget();
  const node::Sharing sharing = node::sharing_of(members, self, settings_.room->limit(), budget.bytes());
  desk_.share(budget, sharing.hold_at_most, sharing.at_hand, sharing.binds);
}

void SimulatedHelper::sleep() {
  busy_ = false;
  put_off_ = {};
  const Time now = events_.now();
  if (desk_.acting()) {
    const Time look = settings_.poll > 0 ? desk_.next_look(now) : desk_.next_deadline();
    alert_ = desk_.alert(now, look);
    return wake_ups_.plan(desk_.deep(now) ? later(look) : look);
  }
  if (!attendance_) return wake_ups_.plan(desk_.next_deadline());
  // Only the log waits for records, as in the engine; its looks are those at the others too.
  const std::uint64_t records = counters_.acquires - std::exchange(looked_, counters_.acquires);
  if (records > 0) desk_.found(now);
  desk_.pace(records > settings_.ring / 4);
  wake_ups_.plan(later(desk_.next_look(now)));
}

Time SimulatedHelper::later(Time look) {
  const Time now = events_.now();
  const Time latest = now + (now - settings_.start) / kLooksPerAge;
  const Time later = std::min(latest, desk_.next_deadline());
  if (later <= look) return look;
  put_off_ = {now, look - now};
  return later;
}

void SimulatedHelper::finish() {
  drain();
  for (const Domains::OwnDomain& own : domains_.all()) own.kept.retention->end_runs(events_.now());
  log_runs();
  wake_ups_.cancel();
}

void SimulatedHelper::add_to(runlog::Counters& counters, Time ended) {
  desk_.time_budget().waited(delayed_);
  desk_.add_to(counters, ended);
  counters.helper_cpu_ns = static_cast<std::uint64_t>(cpu_);
}

}  // namespace pinion::simulate
