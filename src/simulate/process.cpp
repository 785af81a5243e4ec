#include "simulate/process.h"

#include <algorithm>
#include <utility>

namespace pinion::simulate {

namespace {
/// So much unmapped memory is not left pinned until the helper's next look (as in the engine).
constexpr std::size_t kMuchDoomed = std::size_t{1} << 20;
}  // namespace

Process::Process(Settings settings, std::unique_ptr<Predictor> predictor, Observer& observer)
    : settings_(std::move(settings)),
      observer_(observer),
      device_(settings_.nic, &clock_),
      share_(settings_.room ? std::make_optional<node::NodeShare>(*settings_.room) : std::nullopt),
      budget_(Limits{settings_.limit,
                     settings_.nic.caps.max_regions ? settings_.nic.caps.max_regions : UINT64_MAX, "--limit"},
              share_ ? &*share_ : nullptr),
      domain_(device_, budget_, brackets_, clock_, this),
      predictor_(std::move(predictor)),
      time_budget_(settings_.time_budget, settings_.start),
      looks_(std::max<Duration>(settings_.poll, 1), settings_.start),
      oracle_(settings_.nic),
      ended_(settings_.start) {
  clock_.set(settings_.start);
  const bool acts = settings_.retention == RetentionKind::helper;
  if (acts || settings_.retention == RetentionKind::observe)
    retention_.emplace(
        domain_, *predictor_, costs_,
        HelperRetention::Settings{
            .act = acts, .budget = &time_budget_, .minimize_peak = settings_.minimize_peak, .site_name = {}});
  if (settings_.nic.register_ns_per_page > 0)
    domain_.set_call_pages(settings_.nic.register_ns_base / settings_.nic.register_ns_per_page);
  if (settings_.retention == RetentionKind::lru) domain_.set_keep_bytes(settings_.lru_bytes);
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
  costs_.wake.set_turn(turn);
  if (has_helper == has_helper_ || settings_.retention != RetentionKind::helper) return;
  has_helper_ = has_helper;
  if (has_helper) {
    retention_->act_again();
    if (!helper_busy_) wake_by(clock_.now());
  } else {
    retention_->stop_acting();
  }
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
      release(leases_[event.index].thread, event.index);
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

void Process::delay_application(Duration by) {
  for (Event& event : events_)
    if (event.application) event.time += by;
  std::make_heap(events_.begin(), events_.end());
}

void Process::finish() {
  while (helper_busy_) step();
  drain();
  ++plans_;  // no wake-up is wanted any more
  oracle_.settle(kNever, oracle_changed());
  const auto retire = [&](Region* region) {
    const Time now = clock_.now();
    device_.deregister(region->key, Actor::helper);
    clock_.set(now);
    domain_.finish_retire(region);
    ++counters_.deregistrations;
  };
  while (Region* region = domain_.begin_reap()) retire(region);
  for (const RegionRef& ref : domain_.idle_regions())
    if (Region* region = domain_.begin_retire(ref)) retire(region);
  budget_.end_allowance();
}

void Process::registered_changed(Time now, Time since, std::int64_t bytes, int) {
  observer_.registered(now, since, bytes);
}

runlog::Counters Process::counters() {
  runlog::Counters all = counters_;
  if (retention_) retention_->score().add_to(all);
  all.helper_cpu_ns = static_cast<std::uint64_t>(helper_device_time_);
  time_budget_.advance(ended_);
  all.budget_ns = static_cast<std::uint64_t>(time_budget_.allowed());
  all.budget_spent_ns = time_budget_.lost();
  all.budget_refused = time_budget_.refused();
  return all;
}

// ---- device calls and the registry's steps ----

template <class F>
Duration Process::time_of(std::uint32_t number, bool registration, F&& device_call) {
  const Time begin = clock_.now();
  device_call();
  Duration took = clock_.now() - begin;
  clock_.set(begin);
  if (settings_.call_time) took = settings_.call_time(actor(number), registration, took);
  if (number == kHelper) {
    helper_device_time_ += took;
    if (!settings_.own_core) delay_application(took);
  }
  return took;
}

void Process::go(std::uint32_t number, Domain::Step step) {
  Call& made = call(number);
  switch (step) {
    case Domain::Step::leased:
    case Domain::Step::refused:
      break;
    case Domain::Step::wait:
      made.waited = true;
      if (!made.ticket.lease) break;
      waiting_.push_back(number);
      return;
    case Domain::Step::deregister:
      made.phase = Call::Phase::evicting;
      made.regions = made.ticket.victims;
      made.next = 0;
      retire_next(number);
      return;
    case Domain::Step::register_: {
      made.phase = Call::Phase::registering;
      made.device_begin = clock_.now();
      const Duration took = time_of(number, true, [&] {
        made.registration =
            device_.register_range(made.ticket.region->range(), made.ticket.try_access, actor(number));
      });
      schedule(clock_.now() + took, What::device_call, number != kHelper, number);
      return;
    }
  }
  if (number != kHelper) return acquired(static_cast<std::uint16_t>(number - 1), step);
  const bool ok = step == Domain::Step::leased;
  retention_->done(action_,
                   ok ? RegionRef{made.ticket.region, made.ticket.region->generation()} : RegionRef{}, ok,
                   made.registration_took, clock_.now());
  // After the registry's own step is through.
  schedule(clock_.now(), What::helper_acts, false, 0);
}

void Process::retire_next(std::uint32_t number) {
  Call& made = call(number);
  if (made.next < made.regions.size()) {
    made.device_begin = clock_.now();
    const Duration took =
        time_of(number, false, [&] { device_.deregister(made.regions[made.next]->key, actor(number)); });
    schedule(clock_.now() + took, What::device_call, number != kHelper, number);
    return;
  }
  if (made.phase == Call::Phase::evicting) return go(number, domain_.begin(made.ticket));
  made.phase = Call::Phase::none;
  if (number == kHelper) return acted(clock_.now() - made.device_begin);
  threads_[number - 1].delayed += made.in_device;
  schedule_next(static_cast<std::uint16_t>(number - 1));
}

void Process::device_call_done(std::uint32_t number) {
  Call& made = call(number);
  const auto thread = static_cast<std::uint16_t>(number == kHelper ? 0 : number - 1);
  if (made.phase == Call::Phase::bouncing) {
    made.phase = Call::Phase::none;
    granted(thread);
    return schedule_next(thread);
  }
  const bool registering = made.phase == Call::Phase::registering;
  const Range pages = registering ? made.ticket.region->range() : made.regions[made.next]->range();
  const bool failed = registering && made.registration.error;
  const Duration took = clock_.now() - made.device_begin;
  observer_.device_call(made.device_begin, clock_.now(), pages, registering, failed, actor(number));
  ++(failed        ? counters_.registration_failures
     : registering ? counters_.registrations
                   : counters_.deregistrations);
  made.in_device += took;
  if (number != kHelper) {
    counters_.registration_ns += static_cast<std::uint64_t>(took);
    if (!failed)
      note_device_call(made,
                       registering ? runlog::EventKind::registration : runlog::EventKind::deregistration,
                       pages, thread);
  }
  if (!registering) {
    domain_.finish_retire(made.regions[made.next++]);
    return retire_next(number);
  }
  if (!failed) made.registration_took = took;
  go(number, domain_.commit(made.ticket, made.registration));
  resume_waiters();
}

void Process::resume_waiters() {
  if (waiting_.empty()) return;
  std::list<std::uint32_t> waiting;
  waiting.swap(waiting_);
  for (const std::uint32_t number : waiting) {
    const Domain::Ticket& ticket = call(number).ticket;
    if (ticket.region->transitions.load() == ticket.seen) {
      waiting_.push_back(number);
    } else {
      go(number, domain_.begin(call(number).ticket));
    }
  }
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
      return release(number, thread.slots[operation.slot]);
    case Operation::Kind::memory_event:
      change_memory(operation.range, number);
      return true;
    case Operation::Kind::pause:
      return true;
  }
  return true;
}

std::uint32_t Process::take_lease() {
  if (free_leases_.empty()) {
    leases_.emplace_back();
    return static_cast<std::uint32_t>(leases_.size() - 1);
  }
  const std::uint32_t lease = free_leases_.back();
  free_leases_.pop_back();
  return lease;
}

bool Process::acquire(std::uint16_t number, const Operation& operation) {
  Thread& thread = threads_[number];
  thread.asked = clock_.now();
  thread.lease = take_lease();
  if (operation.slot >= thread.slots.size()) thread.slots.resize(operation.slot + std::size_t{1});
  thread.slots[operation.slot] = thread.lease;
  Lease& lease = leases_[thread.lease];
  lease.live = true;
  lease.thread = number;
  lease.range = operation.range;
  lease.number = counters_.acquires++;
  counters_.acquired_bytes += operation.range.bytes();
  Record& record = lease.record;
  record.begin = static_cast<Ticks>(clock_.now());
  record.wait = 0;
  record.delayed = static_cast<Ticks>(thread.delayed);
  record.address = operation.range.begin;
  record.bytes = operation.range.bytes();
  record.site = operation.site;
  record.set_region({});
  record.kind = runlog::EventKind::lease;
  record.call = operation.call;
  record.outcome = runlog::Outcome::hit;
  record.access = operation.access;
  record.flags = 0;

  const Range pages = operation.range.to_pages();
  lease.first = 0;
  lease.all_new = false;
  if (const std::size_t fresh = leave_pinned_.would_add(pages)) {
    leave_pinned_.add(pages);
    lease.first = settings_.nic.register_cost(fresh / page_size());
    lease.all_new = fresh == pages.bytes();
    counters_.leave_pinned_registration_ns += static_cast<double>(lease.first);
    observer_.left_pinned(clock_.now(), static_cast<std::int64_t>(fresh));
  }

  if (settings_.retention == RetentionKind::observe) {
    record.outcome = runlog::Outcome::observed;
    ++counters_.observed;
    granted(number);
    return true;
  }
  if (Region* region = domain_.try_hit(operation.range, operation.access, *thread.recent)) {
    record.set_region({region, region->generation()});
    ++counters_.hits;
    granted(number);
    return true;
  }
  Call& made = calls_[number];
  made.ticket = {};
  made.ticket.pages = pages;
  made.ticket.access = operation.access;
  made.waited = false;
  made.in_device = 0;
  go(number + 1u, domain_.begin(made.ticket));
  return false;
}

void Process::acquired(std::uint16_t number, Domain::Step step) {
  Thread& thread = threads_[number];
  Call& made = calls_[number];
  Lease& lease = leases_[thread.lease];
  Record& record = lease.record;
  made.phase = Call::Phase::none;
  const Duration waited = clock_.now() - thread.asked;
  thread.delayed += waited;
  record.wait = std::min(static_cast<Ticks>(waited), Record::kMostWait);
  counters_.wait_ns += static_cast<std::uint64_t>(waited - made.in_device);
  if (step == Domain::Step::refused) {
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
    Region* region = made.ticket.region;
    record.set_region({region, region->generation()});
    record.outcome = made.ticket.registered_here ? runlog::Outcome::miss
                     : made.waited               ? runlog::Outcome::wait
                                                 : runlog::Outcome::hit;
    ++(made.ticket.registered_here ? counters_.misses : made.waited ? counters_.waits : counters_.hits);
    region->last_use.store(clock_.ticks(), std::memory_order_relaxed);
    domain_.remember(*thread.recent, record.address, region);
  }
  granted(number);
  if (settings_.retention == RetentionKind::lru && made.ticket.registered_here)
    return retire_here(number, domain_.begin_trim());
  schedule_next(number);
}

void Process::granted(std::uint16_t number) {
  const Thread& thread = threads_[number];
  Lease& lease = leases_[thread.lease];
  const Time now = clock_.now();
  lease.leased = now;
  oracle_.lease(now, lease.range.to_pages(), oracle_changed());
  observer_.acquired(lease.number, thread.asked, now, lease.record.outcome);
  if (thread.operation.lasts != kUntilReleased)
    schedule(now + thread.operation.lasts, What::release, true, thread.lease);
}

bool Process::release(std::uint16_t number, std::uint32_t index) {
  Lease& lease = leases_[index];
  Record& record = lease.record;
  const Time now = clock_.now();
  record.end = static_cast<Ticks>(now);
  // One that was shorter than the clock's tick still held its pages.
  oracle_.end(std::max(now, lease.leased + 1), lease.range.to_pages(), oracle_changed());
  std::vector<Region*> retired;
  if (Region* region = record.region().region) {
    if (region->memory_changed.load(std::memory_order_relaxed)) record.flags |= runlog::kMemoryGone;
    const auto released = domain_.release(region, record.begin, record.end);
    if (settings_.retention == RetentionKind::on_demand && released == RegionWord::Released::idle)
      if (Region* claimed = domain_.begin_retire(record.region())) retired.push_back(claimed);
  }
  const auto waited = static_cast<Duration>(record.wait);
  push(record, number, lease.number, lease.all_new ? waited : std::min(lease.first, waited));
  lease.live = false;
  free_leases_.push_back(index);
  if (retired.empty()) return true;
  retire_here(number, std::move(retired));
  return false;
}

void Process::retire_here(std::uint16_t number, std::vector<Region*> regions) {
  Call& made = calls_[number];
  made.phase = Call::Phase::retiring;
  made.regions = std::move(regions);
  made.next = 0;
  made.in_device = 0;
  retire_next(number + 1u);
}

void Process::change_memory(Range range, std::uint16_t thread) {
  brackets_.open(range);
  doomed_bytes_ += domain_.doom(range);
  brackets_.close(range);
  ++counters_.memory_events;
  const std::size_t gone = leave_pinned_.erase(range);
  if (gone) observer_.left_pinned(clock_.now(), -static_cast<std::int64_t>(gone));
  Record record;
  record.kind = runlog::EventKind::memory_event;
  record.address = range.begin;
  record.bytes = range.bytes();
  push(record, thread);
}

void Process::note_device_call(const Call& made, runlog::EventKind kind, Range pages, std::uint16_t thread) {
  Record record;
  record.kind = kind;
  record.begin = static_cast<Ticks>(made.device_begin);
  record.end = static_cast<Ticks>(clock_.now());
  record.address = pages.begin;
  record.bytes = pages.bytes();
  push(record, thread);
}

void Process::push(const Record& record, std::uint16_t thread, std::uint64_t number, Duration leave_pinned) {
  if (!has_helper_ && record.kind != runlog::EventKind::memory_event) return;
  if (settings_.retention == RetentionKind::helper || record.kind == runlog::EventKind::memory_event) {
    // Memory events have a board of their own, which loses none that matters.
    if (ring_.size() < settings_.ring || record.kind == runlog::EventKind::memory_event) {
      ring_.push_back({record, thread, number, leave_pinned});
    } else {
      records_lost_ = true;
      ++counters_.records_dropped;
    }
    if (helper_busy_) return;
    const bool filling = ring_.size() >= settings_.ring * 3 / 4 || doomed_bytes_ >= kMuchDoomed;
    if (settings_.poll == 0 || filling || looks_.deep(clock_.now())) {
      wake_by(std::min(wake_at_, clock_.now()));
    } else if (!wake_planned_) {
      wake_by(clock_.now() + settings_.poll);
    }
  } else if (retention_) {  // it only learns, whenever it looks
    Noticed noticed{record, thread, number, leave_pinned};
    take(noticed);
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
  costs_.wake.observe(clock_.now() - wake_at_);
  wake_at_ = kNever;
  wake_planned_ = false;
  act();
}

void Process::drain() {
  if (!ring_.empty()) looks_.found(clock_.now());
  time_budget_.kept_books(
      static_cast<Duration>(static_cast<double>(counters_.acquires) * settings_.bookkeeping_ns));
  for (Noticed& noticed : ring_) take(noticed);
  ring_.clear();
  doomed_bytes_ = 0;
  if (records_lost_) {
    records_lost_ = false;
    retention_->sweep();
  }
}

void Process::take(Noticed& noticed) {
  Record& record = noticed.record;
  const Range range{record.address, record.address + record.bytes};
  const auto begin = static_cast<Time>(record.begin), end = static_cast<Time>(record.end);
  switch (record.kind) {
    case runlog::EventKind::lease: {
      const auto delayed = static_cast<Duration>(record.delayed), wait = static_cast<Duration>(record.wait);
      time_budget_.waited(noticed.thread, delayed + wait, noticed.leave_pinned);
      retention_->use(record, begin, noticed.thread, delayed, end, wait);
      if (record.flags & runlog::kLate) observer_.found_late(noticed.number);
      break;
    }
    case runlog::EventKind::registration:
      costs_.registration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::deregistration:
      costs_.deregistration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::memory_event:
      if (retention_) retention_->memory_event(range.to_pages());
      break;
    case runlog::EventKind::none:
      break;
  }
}

void Process::act() {
  using Kind = HelperRetention::Action::Kind;
  helper_busy_ = true;
  drain();
  reaping_ = true;
  helper_call_.phase = Call::Phase::retiring;
  helper_call_.next = 0;
  if (Region* doomed = domain_.begin_reap()) {
    helper_call_.regions = {doomed};
    return retire_next(kHelper);
  }
  if (attendance_ && attend()) return retire_next(kHelper);
  if (!retention_) return sleep(kNever);
  reaping_ = false;
  action_ = retention_->next(clock_.now());
  switch (action_.kind) {
    case Kind::sleep:
      return sleep(action_.wake_at);
    case Kind::deregister:
      helper_call_.regions = {action_.region};
      return retire_next(kHelper);
    case Kind::register_ahead:
      helper_call_.ticket = {};
      helper_call_.ticket.pages = action_.pages;
      helper_call_.ticket.access = action_.access;
      helper_call_.ticket.lease = false;
      helper_call_.registration_took = 0;
      return go(kHelper, domain_.begin(helper_call_.ticket));
  }
}

/// Looks at the node's other processes, when it is time to, and leaves them theirs of its limit: whether
/// regions have to go for that first.
bool Process::attend() {
  const Time now = clock_.now();
  if (attendance_->due(now, counters_.acquires - attended_)) {
    attended_ = counters_.acquires;
    std::size_t self = 0;
    const node::NodeRoom::Post post{
        {left_pinned_bytes(), 0}, static_cast<std::uint32_t>(threads_.size()), {}, {}};
    const std::vector<node::NodeRoom::Member> members = attendance_->attend(now, post, self);
    sharing_ = node::sharing_of(members, self, settings_.room->limit(), budget_.bytes());
    if (budget_.bytes() > sharing_->hold_at_most) {
      helper_call_.regions = domain_.begin_shrink(sharing_->hold_at_most);
      if (!helper_call_.regions.empty()) return true;
    }
  }
  if (sharing_) budget_.give_back(sharing_->at_hand);
  sharing_.reset();
  return false;
}

void Process::acted(Duration took) {
  if (!reaping_) retention_->done(action_, {}, true, took, clock_.now());
  act();
}

void Process::sleep(Time deadline) {
  helper_busy_ = false;
  helper_call_.phase = Call::Phase::none;
  const bool looks = settings_.poll > 0 && settings_.retention == RetentionKind::helper && has_helper_;
  if (looks) {
    deadline = looks_.next(clock_.now(), deadline, domain_.registered_bytes());
  } else if (attendance_) {
    // Only the log waits for records, as in the engine; its looks are those at the others too.
    looks_.pace(counters_.acquires - looked_ > settings_.ring / 4);
    looked_ = counters_.acquires;
    deadline = looks_.next_for_log(clock_.now(), deadline);
  }
  wake_by(deadline);
}

}  // namespace pinion::simulate
