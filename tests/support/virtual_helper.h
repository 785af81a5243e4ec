// The helper in virtual time: the real HelperRetention, predictor, Domain and ModelDevice under a discrete
// event loop, no threads. Application threads run scripted transfers; device calls take the model's time and
// are interrupted by whatever else happens meanwhile, for the registry works in steps: an acquire can find
// its region being registered and wait, or being deregistered and miss.
//
// Deterministic: equal scripts give equal runs. Not thread-safe.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "base/coverage.h"
#include "device/model.h"
#include "registry/blocking.h"
#include "retention/helper_retention.h"

namespace pinion::test {

/// Pages of an imaginary memory far from address 0.
inline Range virtual_pages(std::size_t first, std::size_t count) {
  constexpr Address kBase = Address{1} << 40;
  return {kBase + first * page_size(), kBase + (first + count) * page_size()};
}

/// A number of bytes over time.
class Level {
 public:
  void set(Time time, std::uint64_t bytes) {
    if (!steps_.empty() && steps_.back().time == time) {
      steps_.back().bytes = bytes;
    } else {
      steps_.push_back({time, bytes});
    }
  }
  std::uint64_t now() const { return steps_.empty() ? 0 : steps_.back().bytes; }
  /// Of [from, to): what held at a moment no time long does not count.
  std::uint64_t peak(Time from, Time to) const {
    std::uint64_t peak = 0;
    for_each(from, to, [&](std::uint64_t bytes, Duration) { peak = std::max(peak, bytes); });
    return peak;
  }
  double mean(Time from, Time to) const {
    double sum = 0;
    for_each(from, to, [&](std::uint64_t bytes, Duration held) {
      sum += static_cast<double>(bytes) * static_cast<double>(held);
    });
    return sum / static_cast<double>(to - from);
  }

 private:
  struct Step {
    Time time;
    std::uint64_t bytes;
  };
  template <class F>
  void for_each(Time from, Time to, F&& f) const {
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Time begin = std::max(from, steps_[i].time);
      const Time end = i + 1 < steps_.size() ? std::min(to, steps_[i + 1].time) : to;
      if (begin < end) f(steps_[i].bytes, end - begin);
    }
  }
  std::vector<Step> steps_;
};

class VirtualHelper final : private RegisteredListener {
 public:
  struct Settings {
    /// UCX's model of an InfiniBand device, as the priors of CostEstimates have it.
    CostModel nic = {"virtual", 246, 16000, 62, 4000, {}};
    unsigned window = 2;
    std::uint64_t limit = UINT64_MAX;
    bool act = true;          ///< false: as under `observe`; what is registered stays (leave-pinned)
    bool own_core = true;     ///< false: application threads stand still while the helper calls the device
    Duration look_after = 0;  ///< from a release to the helper's look at its record
    std::size_t ring = 256;   ///< records that wait for the helper at most; further ones are lost
    Time start = kSecond;
    /// How late each timed wake-up is.
    std::function<Duration()> wake_latency = [] { return Duration{0}; };
  };

  struct Transfer {
    std::uint64_t site = 0;
    Range range;
    Duration compute = 0;   ///< by the thread, since its previous call
    Time not_before = 0;    ///< absolute
    Duration duration = 0;  ///< from lease to release
    bool blocking = true;   ///< false: the thread goes on while the transfer runs
    std::uint16_t thread = 0;
    CallKind call = CallKind::send;
    Access access = Access::read;
  };

  struct Served {
    Transfer transfer;
    Time asked, leased;
    runlog::Outcome outcome;
    bool late =
        false;  ///< a reuse that was not registered in time; known once the helper has seen its record
  };
  struct DeviceCall {
    Time begin, end;
    Range pages;
    bool registration;
    bool failed;
    Actor actor;
  };

  explicit VirtualHelper(Settings settings)
      : settings_(std::move(settings)),
        device_(settings_.nic, &clock_),
        budget_(Limits{settings_.limit, UINT64_MAX, "test"}),
        domain_(device_, budget_, brackets_, clock_, this),
        predictor_(make_predictor("shortest", settings_.window)),
        retention_(domain_, *predictor_, costs_, {.act = settings_.act}) {
    clock_.set(settings_.start);
    registered_.set(clock_.now(), 0);
    leave_pinned_.set(clock_.now(), 0);
  }

  // ---- the script ----

  /// Appends to its thread's program.
  void add(const Transfer& transfer) {
    if (transfer.thread >= threads_.size()) threads_.resize(transfer.thread + 1u);
    Thread& thread = threads_[transfer.thread];
    thread.program.push_back(transfer);
    if (thread.idle) go_on(transfer.thread);
  }
  /// Does something at that time.
  void at(Time time, std::function<void()> what) { schedule(time, Whose::script, std::move(what)); }

  /// Until the programs have run and every transfer is complete. What the helper plans for later waits.
  void run() {
    while (application_events_ > 0 || !waiting_.empty()) step();
  }
  void run_until(Time time) {
    while (!events_.empty() && events_.begin()->first <= time) step();
    clock_.set(time);
  }
  /// run(), then everything idle is let go.
  void finish() {
    run();
    while (helper_busy_) step();
    retire_all(domain_, Actor::helper, [](auto&&...) {});
  }
  /// Called after each event.
  std::function<void()> after_each = [] {};

  /// A memory event, as the hooks report it.
  void change_memory(Range range) {
    brackets_.open(range);
    domain_.doom(range);
    Record record;
    record.kind = runlog::EventKind::memory_event;
    record.address = range.begin;
    record.bytes = range.bytes();
    push(record, 0);
    brackets_.close(range);
    union_.erase(range);
    leave_pinned_.set(clock_.now(), union_.bytes());
  }

  // ---- what happened ----

  Time now() { return clock_.now(); }
  const std::deque<Served>& served() const { return served_; }
  const std::vector<DeviceCall>& device_calls() const { return calls_; }
  const Level& registered() const { return registered_; }
  /// The union of pages ever leased, shrunk by memory events only.
  const Level& leave_pinned() const { return leave_pinned_; }
  /// Late transfers among those asked for at `from` or later.
  std::size_t late(Time from = 0) const {
    return static_cast<std::size_t>(std::count_if(served_.begin(), served_.end(), [&](const Served& served) {
      return served.late && served.asked >= from;
    }));
  }
  std::size_t calls(bool registration, Actor actor) const {
    return static_cast<std::size_t>(std::count_if(calls_.begin(), calls_.end(), [&](const DeviceCall& call) {
      return call.registration == registration && call.actor == actor && !call.failed;
    }));
  }
  template <class F>
  void for_each_lease(F&& f) const {
    for (const auto& lease : leases_) f(lease->served->transfer.range, *lease->ticket.region);
  }

  HelperRetention& retention() { return retention_; }
  Predictor& predictor() { return *predictor_; }
  CostEstimates& costs() { return costs_; }
  Domain& domain() { return domain_; }
  ModelDevice& device() { return device_; }
  Budget& budget() { return budget_; }

 private:
  enum class Whose { application, helper, script };
  struct Event {
    Whose whose;
    std::function<void()> run;
  };

  /// A ticket on its way through the registry's steps.
  struct Task {
    Domain::Ticket ticket;
    Actor actor = Actor::application;
    bool waited = false;
    Duration registration = 0;  ///< what its own device call took
    std::function<void(const std::shared_ptr<Task>&, Domain::Step)> done;
    // Of an application's acquire:
    Record record;
    Served* served = nullptr;
    Duration delayed = 0;
  };
  using TaskPtr = std::shared_ptr<Task>;

  struct Thread {
    std::deque<Transfer> program;
    bool idle = true;
    Time free_at = 0;
    Duration delayed = 0;  ///< its waits for registration so far
    RecentRegions recent;
  };
  struct Noticed {
    Record record;
    std::uint16_t thread;
    Served* served;
    Duration delayed;
  };

  // ---- events ----

  void schedule(Time time, Whose whose, std::function<void()> run) {
    events_.emplace(std::max(time, clock_.now()), Event{whose, std::move(run)});
    application_events_ += whose == Whose::application;
  }
  void step() {
    const auto first = events_.begin();
    const Time time = first->first;
    const Event event = std::move(first->second);
    events_.erase(first);
    application_events_ -= event.whose == Whose::application;
    clock_.set(std::max(time, clock_.now()));
    event.run();
    after_each();
  }

  void registered_changed(Time now, std::int64_t bytes, int) override {
    registered_.set(now, registered_.now() + static_cast<std::uint64_t>(bytes));
  }

  // ---- device calls ----

  /// What `call` costs; the clock stays: the time passes in the events until then.
  template <class Call>
  Duration cost(Actor actor, Call&& call) {
    const Time begin = clock_.now();
    call();
    const Duration took = clock_.now() - begin;
    clock_.set(begin);
    if (actor == Actor::helper && !settings_.own_core) delay_application(took);
    return took;
  }
  void delay_application(Duration by) {
    std::multimap<Time, Event> later;
    for (auto& [time, event] : events_)
      later.emplace(event.whose == Whose::application ? time + by : time, std::move(event));
    events_.swap(later);
  }

  void deregister(Region* region, Actor actor, std::function<void(Duration)> then) {
    const Range pages = region->range();
    const Duration took = cost(actor, [&] { device_.deregister(region->key, actor); });
    calls_.push_back({clock_.now(), clock_.now() + took, pages, false, false, actor});
    schedule(clock_.now() + took, whose(actor), [this, region, took, then = std::move(then)] {
      domain_.finish_retire(region);
      then(took);
    });
  }

  static Whose whose(Actor actor) { return actor == Actor::application ? Whose::application : Whose::helper; }

  // ---- the registry's steps (registry/blocking.h, unrolled over events) ----

  void go(const TaskPtr& task, Domain::Step step) {
    switch (step) {
      case Domain::Step::leased:
      case Domain::Step::refused:
        task->done(task, step);
        break;
      case Domain::Step::wait:
        task->waited = true;
        if (task->ticket.lease) {
          waiting_.push_back(task);
        } else {
          task->done(task, step);
        }
        break;
      case Domain::Step::deregister:
        retire_victims(task, 0);
        break;
      case Domain::Step::register_: {
        const Range pages = task->ticket.region->range();
        Registration registration;
        const Duration took = cost(task->actor, [&] {
          registration = device_.register_range(pages, task->ticket.try_access, task->actor);
        });
        const bool failed = static_cast<bool>(registration.error);
        calls_.push_back({clock_.now(), clock_.now() + took, pages, true, failed, task->actor});
        schedule(clock_.now() + took, whose(task->actor), [this, task, registration, took, failed, pages] {
          if (!failed) task->registration = took;
          if (!failed && task->actor == Actor::application)
            note_device_call(*task, runlog::EventKind::registration, pages, took);
          go(task, domain_.commit(task->ticket, registration));
          resume_waiters();
        });
        break;
      }
    }
  }
  void retire_victims(const TaskPtr& task, std::size_t index) {
    if (index == task->ticket.victims.size()) {
      go(task, domain_.begin(task->ticket));
      return;
    }
    const Range pages = task->ticket.victims[index]->range();
    deregister(task->ticket.victims[index], task->actor, [this, task, index, pages](Duration took) {
      if (task->actor == Actor::application)
        note_device_call(*task, runlog::EventKind::deregistration, pages, took);
      retire_victims(task, index + 1);
    });
  }
  void resume_waiters() {
    std::list<TaskPtr> waiting;
    waiting.swap(waiting_);
    for (const TaskPtr& task : waiting) {
      if (task->ticket.region->transitions.load() == task->ticket.seen) {
        waiting_.push_back(task);
      } else {
        go(task, domain_.begin(task->ticket));
      }
    }
  }

  // ---- application threads ----

  void go_on(std::uint16_t number) {
    Thread& thread = threads_[number];
    thread.idle = thread.program.empty();
    if (thread.idle) return;
    const Transfer& next = thread.program.front();
    schedule(std::max(thread.free_at + next.compute, next.not_before), Whose::application,
             [this, number] { acquire(number); });
  }

  void acquire(std::uint16_t number) {
    Thread& thread = threads_[number];
    auto task = std::make_shared<Task>();
    task->served =
        &served_.emplace_back(Served{thread.program.front(), clock_.now(), 0, runlog::Outcome::hit, false});
    thread.program.pop_front();
    task->delayed = thread.delayed;
    const Transfer& transfer = task->served->transfer;
    Record& record = task->record;
    record.begin = static_cast<Ticks>(clock_.now());
    record.address = transfer.range.begin;
    record.bytes = transfer.range.bytes();
    record.site = transfer.site;
    record.kind = runlog::EventKind::lease;
    record.call = transfer.call;
    record.access = transfer.access;
    union_.add(transfer.range.to_pages());
    leave_pinned_.set(clock_.now(), union_.bytes());

    task->ticket.pages = transfer.range.to_pages();
    task->ticket.access = transfer.access;
    task->done = [this](const TaskPtr& self, Domain::Step step) { acquired(self, step); };
    if (Region* region = domain_.try_hit(transfer.range, transfer.access, thread.recent)) {
      task->ticket.region = region;
      acquired(task, Domain::Step::leased);
    } else {
      go(task, domain_.begin(task->ticket));
    }
  }

  void acquired(const TaskPtr& task, Domain::Step step) {
    const Transfer& transfer = task->served->transfer;
    Record& record = task->record;
    const Duration waited = clock_.now() - task->served->asked;
    threads_[transfer.thread].delayed += waited;
    record.wait = static_cast<Ticks>(waited);
    record.outcome = step == Domain::Step::refused  ? runlog::Outcome::bounced
                     : task->ticket.registered_here ? runlog::Outcome::miss
                     : task->waited                 ? runlog::Outcome::wait
                                                    : runlog::Outcome::hit;
    if (step == Domain::Step::leased) {
      Region* region = task->ticket.region;
      record.region = {region, region->generation()};
      region->last_use.store(static_cast<Ticks>(clock_.now()));
      threads_[transfer.thread].recent.remember(transfer.range.begin, region);
      leases_.push_back(task);
    }
    task->served->leased = clock_.now();
    task->served->outcome = record.outcome;
    const Time end = clock_.now() + transfer.duration;
    schedule(end, Whose::application, [this, task] { release(task); });
    if (!transfer.blocking) {
      threads_[transfer.thread].free_at = clock_.now();
      go_on(transfer.thread);
    }
  }

  void release(const TaskPtr& task) {
    const Transfer& transfer = task->served->transfer;
    task->record.end = static_cast<Ticks>(clock_.now());
    if (Region* region = task->record.region.region) {
      leases_.remove(task);
      region->last_use.store(static_cast<Ticks>(clock_.now()));
      domain_.release(region);
    }
    push(task->record, transfer.thread, task->served, task->delayed);
    if (transfer.blocking) {
      threads_[transfer.thread].free_at = clock_.now();
      go_on(transfer.thread);
    }
  }

  void note_device_call(const Task& task, runlog::EventKind kind, Range pages, Duration took) {
    Record record = task.record;
    record.kind = kind;
    record.begin = static_cast<Ticks>(clock_.now() - took);
    record.end = static_cast<Ticks>(clock_.now());
    record.address = pages.begin;
    record.bytes = pages.bytes();
    push(record, task.served->transfer.thread);
  }

  // ---- the helper ----

  void push(const Record& record, std::uint16_t thread, Served* served = nullptr, Duration delayed = 0) {
    // Memory events have a board of their own, which loses none that matters.
    if (ring_.size() < settings_.ring || record.kind == runlog::EventKind::memory_event) {
      ring_.push_back({record, thread, served, delayed});
    } else {
      records_lost_ = true;
    }
    if (!helper_busy_) sleep_until(std::min(wake_at_, clock_.now() + settings_.look_after));
  }

  void sleep_until(Time wake) {
    if (wake_at_ == wake && wake_planned_) return;
    wake_at_ = wake;
    wake_planned_ = wake != kNever;
    const std::uint64_t plan = ++plans_;
    if (!wake_planned_) return;
    schedule(std::max(wake, clock_.now()) + settings_.wake_latency(), Whose::helper, [this, plan] {
      if (plan != plans_) return;
      costs_.wake.observe(clock_.now() - wake_at_);
      wake_at_ = kNever;
      wake_planned_ = false;
      act();
    });
  }

  void drain() {
    while (!ring_.empty()) {
      Noticed noticed = ring_.front();
      ring_.pop_front();
      Record& record = noticed.record;
      const Range range{record.address, record.address + record.bytes};
      const auto begin = static_cast<Time>(record.begin), end = static_cast<Time>(record.end);
      switch (record.kind) {
        case runlog::EventKind::lease:
          retention_.use(record, begin, noticed.thread, noticed.delayed);
          noticed.served->late = record.flags & runlog::kLate;
          break;
        case runlog::EventKind::registration:
          costs_.registration.observe(range.pages(), end - begin);
          break;
        case runlog::EventKind::deregistration:
          costs_.deregistration.observe(range.pages(), end - begin);
          break;
        case runlog::EventKind::memory_event:
          retention_.memory_event(range.to_pages());
          break;
        case runlog::EventKind::none:
          break;
      }
    }
    if (records_lost_) {
      records_lost_ = false;
      retention_.sweep();
    }
  }

  void act() {
    using Kind = HelperRetention::Action::Kind;
    helper_busy_ = true;
    drain();
    if (Region* doomed = domain_.begin_reap()) {
      deregister(doomed, Actor::helper, [this](Duration) { act(); });
      return;
    }
    const HelperRetention::Action action = retention_.next(clock_.now());
    switch (action.kind) {
      case Kind::sleep:
        helper_busy_ = false;
        sleep_until(action.wake_at);
        break;
      case Kind::deregister:
        deregister(action.region, Actor::helper, [this, action](Duration took) {
          retention_.done(action, {}, true, took, clock_.now());
          act();
        });
        break;
      case Kind::register_ahead: {
        auto task = std::make_shared<Task>();
        task->actor = Actor::helper;
        task->ticket.pages = action.pages;
        task->ticket.access = action.access;
        task->ticket.lease = false;
        task->done = [this, action](const TaskPtr& self, Domain::Step step) {
          const bool ok = step == Domain::Step::leased;
          RegionRef ref;
          if (ok) ref = {self->ticket.region, self->ticket.region->generation()};
          retention_.done(action, ref, ok, self->registration, clock_.now());
          // After the registry's own step is through.
          schedule(clock_.now(), Whose::helper, [this] { act(); });
        };
        go(task, domain_.begin(task->ticket));
        break;
      }
    }
  }

  const Settings settings_;
  VirtualClock clock_;
  ModelDevice device_;
  Budget budget_;
  Brackets brackets_;
  Domain domain_;
  std::unique_ptr<Predictor> predictor_;
  CostEstimates costs_;
  HelperRetention retention_;

  std::multimap<Time, Event> events_;
  std::size_t application_events_ = 0;
  std::deque<Thread> threads_;
  std::list<TaskPtr> waiting_, leases_;

  std::deque<Noticed> ring_;
  bool records_lost_ = false;
  bool helper_busy_ = false;
  Time wake_at_ = kNever;
  bool wake_planned_ = false;
  std::uint64_t plans_ = 0;

  Level registered_, leave_pinned_;
  Coverage union_;
  std::deque<Served> served_;
  std::vector<DeviceCall> calls_;
};

}  // namespace pinion::test
