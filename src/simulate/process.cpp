#include "simulate/process.h"

#include <algorithm>
#include <utility>

#include "retention/make.h"

namespace pinion::simulate {

namespace {
std::vector<std::unique_ptr<Predictor>> only(std::unique_ptr<Predictor> predictor) {
  std::vector<std::unique_ptr<Predictor>> one;
  one.push_back(std::move(predictor));
  return one;
}
}  // namespace

Process::Process(Settings settings, std::unique_ptr<Predictor> predictor, Observer& observer)
    : Process(std::move(settings), only(std::move(predictor)), observer) {}

Process::Process(Settings settings, std::vector<std::unique_ptr<Predictor>> predictors, Observer& observer)
    : settings_(std::move(settings)),
      traits_(traits_of(settings_.retention)),
      observer_(observer),
      device_(settings_.nic, &clock_),
      share_(settings_.room ? std::make_optional<node::NodeShare>(*settings_.room) : std::nullopt),
      budget_(Limits{settings_.limit, settings_.limit_regions, "--limit"}, share_ ? &*share_ : nullptr),
      desk_({.traits = traits_,
             .time_budget = settings_.time_budget,
             .helper_share = settings_.helper_share,
             .scale = {},
             .poll = std::max<Duration>(settings_.poll, 1),
             .start = settings_.start}),
      oracle_(settings_.nic),
      ended_(settings_.start) {
  clock_.set(settings_.start);
  for (std::unique_ptr<Predictor>& predictor : predictors) {
    OwnDomain& own = domains_.emplace_back(*this);
    all_domains_.push_back(&own.domain);
    own.kept.domain = &own.domain;
    own.kept.retention = make_retention({.kind = settings_.retention,
                                         .lru_bytes = settings_.lru_bytes,
                                         .minimize_peak = settings_.minimize_peak},
                                        own.domain, std::move(predictor), own.kept.costs, desk_.time_budget(),
                                        desk_.helper_share());
    desk_.add(own.kept);
    if (settings_.nic.register_ns_per_page > 0)
      own.domain.set_call_pages(settings_.nic.register_ns_base / settings_.nic.register_ns_per_page);
  }
  if (settings_.room) {
    attendance_.emplace(*settings_.room, settings_.look_every);
    wake_by(settings_.start);
  }
}

void Process::add_thread(Script& script) {
  threads_.emplace_back().script = &script;
  threads_.back().free_at = clock_.now();
  calls_.emplace_back();
  resume(static_cast<std::uint16_t>(threads_.size() - 1));
}

void Process::resume(std::uint16_t thread) {
  if (threads_[thread].idle) schedule_next(thread);
}

void Process::set_helper(bool has_helper, Duration turn) {
  const bool acted = desk_.acting();
  desk_.set_helper(has_helper, turn);
  if (desk_.acting() && !acted && !helper_busy_) wake_by(clock_.now());
}

void Process::at(Time time, std::function<void()> what) {
  script_events_.push_back(std::move(what));
  schedule(time, What::script, false, static_cast<std::uint32_t>(script_events_.size() - 1));
}

// ---- events ----

void Process::schedule(Time time, What what, bool application, std::uint32_t index) {
  events_.push_back({std::max(time, clock_.now()), scheduled_++, what, application, index});
  std::push_heap(events_.begin(), events_.end());
  application_events_ += application;
}

void Process::step(Time until) {
  std::pop_heap(events_.begin(), events_.end());
  const Event event = events_.back();
  events_.pop_back();
  application_events_ -= event.application;
  clock_.set(std::max(event.time, clock_.now()));
  run(event, until);
}

void Process::run(const Event& event, Time until) {
  switch (event.what) {
    case What::thread:
      run_thread(static_cast<std::uint16_t>(event.index), until);
      break;
    case What::device_call:
      device_call_done(event.index);
      break;
    case What::release:
      release(leases_[event.index].thread, event.index, false);
      break;
    case What::wait_ends:
      wait_ended(event.index);
      break;
    case What::helper_wakes:
      if (event.index == plans_) wakes();
      break;
    case What::helper_acts:
      act();
      break;
    case What::script:
      script_events_[event.index]();
      break;
  }
}

void Process::helper_works(Duration took) {
  helper_cpu_ += took;
  if (settings_.own_core || took == 0) return;
  const auto by = static_cast<Duration>(static_cast<double>(took) * settings_.helper_share.delay);
  for (Event& event : events_)
    if (event.application) event.time += by;
  std::make_heap(events_.begin(), events_.end());
}

void Process::finish() {
  while (helper_busy_) step();
  end_runs();
  drain();
  ++plans_;  // no wake-up is wanted any more
  oracle_.settle(kNever, oracle_changed());
  const auto retire = [&](Region* region) {
    const Time now = clock_.now();
    static_cast<void>(device_.deregister(region->key, Actor::helper));  // the model's device refuses none
    clock_.set(now);
    domain(region).finish_retire(region);
    ++counters_.deregistrations;
  };
  for (OwnDomain& own : domains_) {
    while (Region* region = own.domain.begin_reap()) retire(region);
    for (const RegionRef& ref : own.domain.idle_regions())
      if (Region* region = own.domain.begin_retire(ref)) retire(region);
  }
  budget_.end_allowance();
}

void Process::registered_changed(Time now, Time since, std::int64_t bytes, int) {
  observer_.registered(now, since, bytes);
}

runlog::Counters Process::counters() {
  tell_waits();
  runlog::Counters all = counters_;
  desk_.add_to(all, ended_);
  all.helper_cpu_ns = static_cast<std::uint64_t>(helper_cpu_);
  return all;
}

// ---- application threads ----

Time Process::fetch(Thread& thread) {
  ended_ = std::max(ended_, thread.free_at);
  thread.idle = !thread.script->next(thread.operation);
  if (thread.idle) return kNever;
  const Operation& next = thread.operation;
  return std::max({thread.free_at + next.compute + next.transfer, next.not_before, clock_.now()});
}

void Process::schedule_next(std::uint16_t number) {
  Thread& thread = threads_[number];
  if (!thread.idle) thread.free_at = clock_.now();
  const Time due = fetch(thread);
  if (!thread.idle) schedule(due, What::thread, true, number);
}

void Process::run_thread(std::uint16_t number, Time until) {
  Thread& thread = threads_[number];
  while (perform(number)) {
    thread.free_at = clock_.now();
    const Time due = fetch(thread);
    if (thread.idle) return;
    if (due > until || due >= next_event()) return schedule(due, What::thread, true, number);
    clock_.set(due);
  }
}

bool Process::perform(std::uint16_t number) {
  Thread& thread = threads_[number];
  const Operation& operation = thread.operation;
  switch (operation.kind) {
    case Operation::Kind::acquire:
      return acquire(number, operation);
    case Operation::Kind::release:
      return release(number, thread.slots[operation.slot], true);
    case Operation::Kind::memory_event:
      change_memory(operation.range, number);
      return true;
    case Operation::Kind::pause:
      return true;
  }
  return true;
}

Process::Lease& Process::take_lease(Thread& thread, const Operation& operation) {
  if (free_leases_.empty()) {
    free_leases_.push_back(static_cast<std::uint32_t>(leases_.size()));
    leases_.emplace_back();
  }
  thread.lease = free_leases_.back();
  free_leases_.pop_back();
  if (operation.slot >= thread.slots.size()) thread.slots.resize(operation.slot + std::size_t{1});
  thread.slots[operation.slot] = thread.lease;
  return leases_[thread.lease];
}

void Process::leave_pinned(Lease& lease) {
  const std::size_t fresh = leave_pinned_.would_add(lease.pages);
  if (fresh > 0) leave_pinned_.add(lease.pages);
  lease.leave_pinned = {.fresh_bytes = fresh, .all_bytes = leave_pinned_.bytes()};
  if (fresh > 0) observer_.left_pinned(clock_.now(), static_cast<std::int64_t>(fresh));
}

void Process::waited(Lease& lease, Duration wait) {
  lease.record.wait = std::min(static_cast<Ticks>(wait), Record::kMostWait);
  if (lease.leave_pinned.fresh_bytes == 0) return;
  const Duration theirs = leave_pinned_part(lease, wait);
  lease.leave_pinned.wait += theirs;
  counters_.leave_pinned_registration_ns += static_cast<double>(theirs);
}

Duration Process::leave_pinned_part(const Lease& lease, Duration wait) const {
  const std::size_t fresh = lease.leave_pinned.fresh_bytes;
  return leave_pinned_wait(wait, settings_.nic.register_cost(fresh / page_size()),
                           static_cast<double>(fresh) / static_cast<double>(lease.pages.bytes()));
}

Duration Process::foresee(std::uint16_t thread, Duration took) {
  Lease& lease = leases_[threads_[thread].lease];
  const Duration wait = leave_pinned_part(lease, took);
  lease.leave_pinned.wait -= wait;
  return wait;
}

void Process::tell_waits() {
  Duration all = 0;
  for (const Thread& thread : threads_) all += thread.delayed;
  desk_.time_budget().waited(all);
}

bool Process::acquire(std::uint16_t number, const Operation& operation) {
  Thread& thread = threads_[number];
  thread.asked = clock_.now();
  Lease& lease = take_lease(thread, operation);
  lease.live = true;
  lease.thread = number;
  lease.range = operation.range;
  if (operation.page_order != 0)
    large_.add(in_large_pages(operation.range, page_size() << operation.page_order));
  const LargeRange large = large_.around(operation.range);
  lease.pages = large.empty() ? operation.range.to_pages() : large.range;
  lease.number = counters_.acquires++;
  counters_.acquired_bytes += operation.range.bytes();
  leave_pinned(lease);
  Record& record = lease.record = Record();
  record.begin = clock_.ticks();
  record.delayed = static_cast<Ticks>(thread.delayed);
  record.address = operation.range.begin;
  record.bytes = operation.range.bytes();
  record.site = operation.site;
  record.kind = runlog::EventKind::lease;
  record.call = operation.call;
  record.access = operation.access;
  record.domain = number_of(own(operation.range));

  if (!traits_.registers) {
    record.outcome = runlog::Outcome::observed;
    ++counters_.observed;
    granted(number);
    return true;
  }
  Domain& in = domain(operation.range);
  if (Region* region = in.try_hit(operation.range, operation.access, *thread.recent)) {
    record.set_region({region, region->generation()});
    ++counters_.hits;
    granted(number);
    return true;
  }
  Call& made = calls_[number];
  made.acquisition.emplace(
      in, AcquireRequest{.pages = operation.range.to_pages(), .large = large, .access = operation.access},
      all_domains_);
  made.in_device = 0;
  go(number + 1u, made.acquisition->next(clock_.now()));
  return false;
}

void Process::acquired(std::uint16_t number, AcquireStep step) {
  Thread& thread = threads_[number];
  Call& made = calls_[number];
  Lease& lease = leases_[thread.lease];
  Record& record = lease.record;
  made.phase = Call::Phase::none;
  const Duration waited = clock_.now() - thread.asked;
  thread.delayed += waited;
  this->waited(lease, waited);
  counters_.wait_ns += static_cast<std::uint64_t>(waited - made.in_device);
  const AcquireResult& result = made.acquisition->result();
  if (step == AcquireStep::refused) {
    record.outcome = runlog::Outcome::bounced;
    ++counters_.bounced;
    counters_.bounced_bytes += record.bytes;
    if (const Duration copy = copy_time(record.bytes, settings_.memcpy_bytes_per_ns)) {
      thread.delayed += copy;
      counters_.bounce_ns += static_cast<std::uint64_t>(copy);
      made.phase = Call::Phase::bouncing;
      return schedule(clock_.now() + copy, What::device_call, true, number + 1u);
    }
  } else {
    Region* region = result.region;
    record.set_region({region, region->generation()});
    record.outcome = outcome_of(result.registered_here, result.waited);
    ++(result.registered_here ? counters_.misses : result.waited ? counters_.waits : counters_.hits);
    region->last_use.store(clock_.ticks(), std::memory_order_relaxed);
    domain(region).remember(*thread.recent, record.address, region);
  }
  granted(number);
  if (result.registered_here && settle(number, {})) return;
  schedule_next(number);
}

void Process::granted(std::uint16_t number) {
  const Thread& thread = threads_[number];
  Lease& lease = leases_[thread.lease];
  const Time now = clock_.now();
  lease.leased = now;
  oracle_.lease(now, lease.pages, oracle_changed());
  observer_.acquired(lease.number, thread.asked, now, lease.record.outcome);
  if (thread.operation.lasts != kUntilReleased)
    schedule(now + thread.operation.lasts, What::release, true, thread.lease);
}

bool Process::release(std::uint16_t number, std::uint32_t index, bool by_thread) {
  Lease& lease = leases_[index];
  Record& record = lease.record;
  const Time now = clock_.now();
  record.end = clock_.ticks();
  // One that was shorter than the clock's tick still held its pages.
  oracle_.end(std::max(now, lease.leased + 1), lease.pages, oracle_changed());
  const RegionRef ref = record.region();
  const bool settled = ref.region && record.begin < ref.region->settled_until.load(std::memory_order_relaxed);
  const bool idle = ref.region && end_lease(domain(ref.region), record) == RegionWord::Released::idle;
  leave(number, lease, settled);
  lease.live = false;
  free_leases_.push_back(index);
  return !idle || !by_thread || !settle(number, ref);
}

void Process::leave(std::uint16_t number, const Lease& lease, bool settled) {
  UseRuns& runs = *threads_[number].runs;
  const auto ended = [&](const Record& run) { push({{run, number}, 0, {}}); };
  observer_.used({lease.record, number});
  if ((settled || runs.any()) && runs.end_or_count(lease.record, settled, ended)) return;
  push({{lease.record, number}, lease.number, lease.leave_pinned});
}

void Process::end_runs() {
  for (std::uint16_t number = 0; number < threads_.size(); ++number)
    threads_[number].runs->end_all([&](const Record& run) { push({{run, number}, 0, {}}); });
}

bool Process::settle(std::uint16_t number, RegionRef idle) {
  if (!traits_.settles) return false;
  calls_[number].idle = idle;
  calls_[number].in_device = 0;
  return settle_next(number);
}

bool Process::settle_next(std::uint16_t number) {
  Call& made = calls_[number];
  const Range pages = made.idle.region ? made.idle.region->range() : made.acquisition->request().pages;
  Retention& retention = *own(pages).kept.retention;
  Region* region =
      made.idle.region ? retention.claim_after_release(made.idle) : retention.claim_after_registration();
  if (!region) return false;
  made.phase = Call::Phase::retiring;
  made.regions = {region};
  made.next = 0;
  retire_next(number + 1u);
  return true;
}

void Process::change_memory(Range range, std::uint16_t thread) {
  brackets_.open(range);
  doomed_bytes_ += domain(range).doom(range);
  brackets_.close(range);
  ++counters_.memory_events;
  large_.erase(range);
  const std::size_t gone = leave_pinned_.erase(range);
  if (gone) observer_.left_pinned(clock_.now(), -static_cast<std::int64_t>(gone));
  push({{memory_event_at(clock_.ticks(), range), thread}, 0, {}});
}

void Process::push(const Noticed& noticed) {
  // Memory events have a board of their own, which loses none that matters.
  const bool memory_event = noticed.taken.record.kind == runlog::EventKind::memory_event;
  if (!memory_event && !desk_.learning()) return;
  if (!memory_event && !desk_.acting()) return take(noticed);  // it only learns, whenever it looks
  if (memory_event || ring_.size() < settings_.ring) {
    ring_.push_back(noticed);
  } else {
    records_lost_ = true;
    ++counters_.records_dropped;
  }
  if (helper_busy_) return;
  const bool filling = ring_.size() >= settings_.ring * 3 / 4 || doomed_bytes_ >= LookSchedule::kMuchDoomed;
  const bool alarms = alert_ && is_unforeseen(noticed.taken.record);
  if (settings_.poll == 0 || filling || alarms || desk_.deep(clock_.now())) {
    wake_by(std::min(wake_at_, clock_.now()));
  } else if (!wake_planned_) {
    wake_by(clock_.now() + settings_.poll);
  }
}

// ---- the helper ----

void Process::wake_by(Time wake) {
  if (wake_at_ == wake && wake_planned_) return;
  wake_at_ = wake;
  wake_planned_ = wake != kNever;
  ++plans_;
  if (!wake_planned_) return;
  Time at = std::max(wake, clock_.now()) + settings_.wake_latency();
  if (settings_.turn_after) at = settings_.turn_after(at);
  schedule(at, What::helper_wakes, false, plans_);
}

void Process::wakes() {
  ++counters_.helper_wakeups;
  helper_works(settings_.wake_cost);
  desk_.woke_late(clock_.now() - wake_at_);
  wake_at_ = kNever;
  wake_planned_ = false;
  act();
}

void Process::drain() {
  if (!ring_.empty()) desk_.found(clock_.now());
  tell_waits();
  desk_.time_budget().kept_books(
      static_cast<Duration>(static_cast<double>(counters_.acquires) * settings_.bookkeeping_ns));
  if (!desk_.helper_share().resting())
    helper_works(static_cast<Duration>(ring_.size()) * settings_.record_cost);
  for (const Noticed& noticed : ring_) take(noticed);
  ring_.clear();
  doomed_bytes_ = 0;
  if (std::exchange(records_lost_, false)) desk_.sweep();
}

void Process::take(const Noticed& noticed) {
  runlog::Event event = desk_.take(noticed.taken, noticed.leave_pinned);
  const LargeRange large = large_.around({event.address, event.address + event.bytes});
  if (!large.empty() && runlog::is_request(event.kind))
    event.page_order = runlog::page_order_of(large.page_bytes);
  observer_.logged(event);
  if (event.flags & runlog::kLate) observer_.found_late(noticed.number);
}

void Process::act() {
  helper_busy_ = true;
  drain();
  job_ = desk_.next(clock_.now(), [this] {
    desk_.used(helper_cpu_, clock_.now());
    attend();
  });
  switch (job_.kind) {
    case Desk::Job::Kind::none:
      return sleep();
    case Desk::Job::Kind::deregister:
      helper_call_.phase = Call::Phase::retiring;
      helper_call_.regions = job_.regions;
      helper_call_.next = 0;
      return retire_next(kHelper);
    case Desk::Job::Kind::register_ahead:
      helper_call_.acquisition.emplace(
          *job_.in->domain, AcquireRequest{.pages = job_.action.pages,
                                           .large = large_.around(job_.action.pages),
                                           .access = job_.action.access,
                                           .lease = false,
                                           .expected = job_.in->costs.registration.expected(
                                               job_.in->costs.entries_a_page.of(job_.action.pages.pages()))});
      helper_call_.registration_took = 0;
      return go(kHelper, helper_call_.acquisition->next(clock_.now()));
  }
}

/// Looks at the node's other processes, when it is time to, and leaves them theirs of its limit.
void Process::attend() {
  const Time now = clock_.now();
  if (!attendance_ || !attendance_->due(now, counters_.acquires - attended_)) return;
  attended_ = counters_.acquires;
  std::size_t self = 0;
  const node::NodeTable::Post post{
      {left_pinned_bytes(), 0}, static_cast<std::uint32_t>(threads_.size()), {}, {}};
  const std::vector<node::NodeTable::Member> members = attendance_->attend(now, post, self);
  const node::Sharing sharing = node::sharing_of(members, self, settings_.room->limit(), budget_.bytes());
  desk_.share(budget_, sharing.hold_at_most, sharing.at_hand, sharing.binds);
}

void Process::sleep() {
  helper_busy_ = false;
  helper_call_.phase = Call::Phase::none;
  const Time now = clock_.now();
  if (desk_.acting()) {
    const Time look = settings_.poll > 0 ? desk_.next_look(now) : desk_.next_deadline();
    alert_ = desk_.alert(now, look);
    return wake_by(look);
  }
  if (!attendance_) return wake_by(desk_.next_deadline());
  // Only the log waits for records, as in the engine; its looks are those at the others too.
  const std::uint64_t records = counters_.acquires - std::exchange(looked_, counters_.acquires);
  if (records > 0) desk_.found(now);
  desk_.pace(records > settings_.ring / 4);
  wake_by(desk_.next_look(now));
}

}  // namespace pinion::simulate
