#include "engine/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "base/held_signals.h"
#include "device/make.h"
#include "engine/copy_speed.h"
#include "engine/fabric_monitor.h"
#include "engine/process.h"
#include "monitor/loader.h"
#include "monitor/userfault.h"
#include "predict/call_site.h"
#include "registry/blocking.h"

namespace pinion {

namespace {

constexpr const char* kProgramsDevices =
    "registers with the program's own RDMA devices, below its libraries (--front verbs)";

// A directory that goes away with whoever made it is on one node. On another there would be nobody to take
// the log away again.
bool has_log(const Options& options) {
  const char* temporary = std::getenv("PINION_TEMPORARY_LOG");
  return !options.log.empty() &&
         !(temporary && *temporary == '1' && ::access(options.log.c_str(), W_OK) != 0);
}

}  // namespace

std::atomic<Engine*> Engine::running_{nullptr};
constinit Brackets Engine::brackets_;
Engine* Engine::newest_ = nullptr;

Engine::Engine(const Options& options, const JobPlace& place)
    : threshold_(options.threshold),
      observes_(options.retention == RetentionKind::observe),
      retire_at_release_(options.retention == RetentionKind::on_demand),
      spends_modelled_time_(options.device == "emulated"),
      options_(options),
      place_(place),
      process_(::getpid()),
      memory_bytes_(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * page_size()),
      body_(take_body()),
      time_budget_({.share = options.time_budget, .credit = options.start_credit}, clock_.now()) {}

// ---- start ----

Error Engine::start(const Options& options, const JobPlace& place, const std::string& command) {
  if (running()) return Error::make(EBUSY, "an engine runs in this process already");
  const HeldSignals held;
  calibration();
  // Below the libraries there is no domain before the program has a device.
  const bool own_device = options.front != Front::verbs;
  DeviceResult made = own_device ? make_device(options.device, options.nic) : DeviceResult{};
  if (made.error) return made.error;

  // Never freed: a thread may be inside it when the run ends.
  auto* engine = new Engine(options, place);
  engine->earlier_ = newest_;
  newest_ = engine;
  const std::uint64_t node_bytes = engine->enter_node();
  node::Place* node = engine->place_among_.get();
  engine->budget_ = std::make_unique<Budget>(
      find_limits(options.limit, options.limit_regions, place.local_ranks, node_bytes),
      node ? node->allowance() : nullptr);
  Error error;
  if (!options.profile.empty()) {
    if (Error unread = read_profile(profile_path(options.profile, place.rank), engine->profile_))
      std::fprintf(stderr, "pinion: no profile: %s\n", unread.message);
  }
  const std::string device_text = own_device ? made.device->description() : kProgramsDevices;
  if (own_device) engine->add_domain(std::move(made.device), options.device, options.nic, error);
  if (error) {
    engine->leave_node();
    return error;
  }

  watch_forks();

  // Counters and records of an earlier run in this process are not this run's.
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    for (ThreadCounters& counters : thread->counters) new (&counters) ThreadCounters;
    for (Record old; thread->ring.pop(old);) {
    }
    engine->dropped_before_ += thread->ring.dropped();
  }
  engine->dropped_seen_ = engine->dropped_before_;

  engine->watch_memory();
  running_.store(engine, std::memory_order_release);
  const Time now = engine->clock_.now();
  engine->meter_.start(now);
  if (has_log(options)) {
    runlog::RunInfo info;
    info.job = job_key();
    info.run = run_key();
    info.command = command;
    info.options = format_options(options);
    info.retention = to_string(options.retention);
    info.predictor = options.predictor;
    info.device = device_text;
    info.rank = place.rank;
    info.ranks = place.ranks;
    info.local_ranks = place.local_ranks;
    info.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
    info.limit_bytes = engine->limits().bytes;
    info.memcpy_bytes_per_ns = engine->copy_speed();
    info.start = now;
    // A log that cannot be written costs the log, not the run.
    if (Error failed = engine->log_.open(options.log, info, options.log_size))
      std::fprintf(stderr, "pinion: no log: %s\n", failed.message);
  }
  error = engine->start_helper();
  if (error) {
    running_.store(nullptr, std::memory_order_release);
    engine->leave_memory();
    engine->leave_node();
  }
  return error;
}

int Engine::add_domain(std::unique_ptr<Device> device, const std::string& device_name, const std::string& nic,
                       Error& error) {
  const int number = domain_count_.load(std::memory_order_relaxed);
  if (number == kMostDomains) {
    error = Error::make(ENOSPC, "one process can have %d domains, counting one of each kind that was closed",
                        kMostDomains);
    return -1;
  }
  DomainSlot* slot = &new_slot(std::move(device));
  slot->device_name = device_name;
  slot->nic = nic;
  if (slot->device->hides_from_children()) hides_from_children_.store(true, std::memory_order_relaxed);
  if (options_.retention == RetentionKind::lru) slot->domain->set_keep_bytes(options_.lru_size);
  if (options_.retention == RetentionKind::helper || options_.retention == RetentionKind::observe) {
    slot->predictor = make_predictor(options_.predictor, static_cast<unsigned>(options_.window));
    HelperRetention::Settings settings;
    settings.act = options_.retention == RetentionKind::helper;
    settings.budget = &time_budget_;
    settings.minimize_peak = options_.minimize == Minimize::peak;
    if (!options_.profile.empty()) {
      settings.site_name = [this](std::uint64_t site) { return stable_sites_.name(site); };
      // A profile that cannot be used costs the profile, not the run.
      if (!profile_.empty()) {
        if (Error unused = slot->predictor->load_profile(profile_))
          std::fprintf(stderr, "pinion: %s\n", unused.message);
      }
    }
    slot->retention =
        std::make_unique<HelperRetention>(*slot->domain, *slot->predictor, slot->costs, std::move(settings));
  }
  domain_of_[static_cast<std::size_t>(number)] = slot->domain.get();
  domains_[static_cast<std::size_t>(number)] = slot;
  domain_count_.store(number + 1, std::memory_order_release);
  return number;
}

int Engine::open_domain(const std::string& device, const std::string& nic, Error& error) {
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  for (int number = 0; number < domain_count(); ++number) {
    DomainSlot& slot = *domains_[static_cast<std::size_t>(number)];
    if (slot.open || slot.device_name.empty() || slot.device_name != device || slot.nic != nic) continue;
    slot.open = true;
    slot.meter.restart();
    return number;
  }
  DeviceResult made = make_device(device, nic);
  error = made.error;
  return error ? -1 : add_domain(std::move(made.device), device, nic, error);
}

int Engine::add_domain(std::unique_ptr<Device> device, Error& error) {
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  return add_domain(std::move(device), "", "", error);
}

Error Engine::close_domain(int number) {
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  // By the helper, which then is in no device call of its own for the domain.
  closing_.store(number, std::memory_order_seq_cst);
  wake_helper();
  closing_.wait(number, std::memory_order_acquire);
  DomainSlot& slot = *domains_[static_cast<std::size_t>(number)];
  if (const std::size_t leased = slot.domain->region_count())
    return Error::make(
        EBUSY, "%zu regions of the domain are under lease: release all leases before closing it", leased);
  slot.open = false;
  return {};
}

void Engine::reopen_domain(int number) {
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  DomainSlot& slot = *domains_[static_cast<std::size_t>(number)];
  slot.open = true;
  slot.meter.restart();
}

StartedMonitor Engine::watch_events(MonitorKind kind) {
  brackets_.sight.lost();
  const auto sight = brackets_.sight.look();
  HookSink sink{on_memory_change_begin, on_memory_change_end, on_sight_lost, on_memory_appeared};
  sink.bracketed = [](Range range) { return brackets_.opened_by_another(range); };
  sink.unloaded = invalidate_call_sites;
  // Under every monitor, as code that goes makes learnt stacks worthless. An error concerns memory events
  // only under the monitors of libc, which report it.
  static_cast<void>(watch_loader(sink));
  const StartedMonitor started = start_monitor(kind, sink);
  if (!started.missing && started.monitor->settled()) brackets_.sight.regained(sight);
  return started;
}

void Engine::watch_memory() {
  const StartedMonitor started = watch_events(options_.monitor);
  monitor_ = started.monitor;
  if (started.missing) keep_nothing(started.missing);
}

void Engine::leave_memory() {
  if (&monitor_->chosen() == &monitor_of(MonitorKind::libc) && fabric_monitor::imported()) return;
  monitor_->stop();
  unwatch_loader();
}

void Engine::keep_nothing(const Error& why) {
  if (keeps_nothing_.exchange(true, std::memory_order_acq_rel)) return;
  on_sight_lost();
  if (retire_at_release_) return;  // it would keep nothing anyway
  std::fprintf(stderr,
               "pinion: memory events cannot all be seen (%s): no registration is kept beyond its transfer; "
               "`pinion doctor` says more\n",
               why.message);
}

void Engine::check_hooks() {
  if (keeps_nothing_.load(std::memory_order_acquire)) return;
  if (const Error never = regain_sight(*monitor_)) keep_nothing(never);
}

Error Engine::regain_sight(MemoryMonitor& monitor) {
  auto sight = brackets_.sight.look();
  if (!sight.blind() && monitor.intact()) [[likely]]
    return {};
  if (const Engine* engine = running(); engine && engine->keeps_nothing_.load(std::memory_order_acquire))
    return Error::make(ENOTSUP, "memory events cannot all be seen in this run");
  // A library loaded since (UCX, for one) has put its own hooks over ours, or may have. What went by
  // meanwhile was not seen: nothing that was registered before can be believed.
  if (!sight.blind()) {
    on_sight_lost();  // overwritten in a way that the hooks did not notice
    sight = brackets_.sight.look();
  }
  // Only when they are done; asked after the look that has to hold.
  if (monitor.exposed() || loader_unloading() || !monitor.settled()) return {};
  const HookReport report = monitor.repair();
  if (!report.complete) return report.error;
  brackets_.sight.regained(sight);
  return {};
}

void Engine::report_exposure() {
  exposed_looks_ = monitor_->exposed() ? exposed_looks_ + 1 : 0;
  constexpr int kPassing = 2;  // a library that patches has them open for microseconds
  if (exposed_looks_ != kPassing || retire_at_release_) return;
  std::fprintf(stderr,
               "pinion: another library leaves libc's code writable, so that memory events may be missed: as "
               "long as it does, no registration is kept beyond its transfer\n");
}

// ---- the critical path ----

namespace {

/// The kernel lets whoever unmaps go on before the reader of its event has doomed the regions (userfault.h).
void see_events() {
  if (userfaultfd_handling()) [[unlikely]]
    wait_for_userfaultfd();
}

}  // namespace

void Engine::begin_transfer(ThreadContext& thread, int number, const CallPoint& call, Range request,
                            Access access, Transfer& transfer) {
  transfer.active = true;
  transfer.bookkeeping = 0;
  Record& record = transfer.record;
  record.begin = call.time;
  record.wait = 0;
  record.address = request.begin;
  record.bytes = request.bytes();
  record.site = call.site;
  record.region = {};
  record.peer = call.peer;
  record.kind = runlog::EventKind::lease;
  record.outcome =
      runlog::Outcome::hit;  // until it turns out otherwise: records of device calls are made from this one
  record.call = call.kind;
  record.access = access;
  record.flags = 0;
  record.domain = static_cast<std::uint8_t>(number);
  ThreadCounters& counters = thread.counters[number];
  record.delayed =
      counters.registration_ticks.get() + counters.wait_ticks.get() + spent(counters.bounce_ticks.get());
  counters.acquires.add(1);
  counters.acquired_bytes.add(request.bytes());
}

void Engine::hit(ThreadContext& thread, Region* region, const CallPoint& call, Transfer& transfer) {
  transfer.record.region = {region, region->generation()};
  ThreadCounters& counters = thread.counters[transfer.record.domain];
  counters.hits.add(1);
  // Every 32nd acquire of a thread is measured: reading the counter each time would cost as much as what it
  // measures.
  if (counters.acquires.get() % 32 == 0) transfer.bookkeeping = ticks_now() - call.time;
}

bool Engine::acquire(ThreadContext& thread, int number, const CallPoint& call, Range request, Access access,
                     Transfer& transfer, Refusal refusal, Error* error) {
  begin_transfer(thread, number, call, request, access, transfer);
  if (observes_) {
    if (!is_possible(request)) [[unlikely]]
      return refuse_impossible(thread, transfer, refusal, error);
    transfer.record.outcome = runlog::Outcome::observed;
    thread.counters[number].observed.add(1);
    return true;
  }
  see_events();
  if (Region* region = domain(number).try_hit(request, access, thread.recent)) [[likely]] {
    hit(thread, region, call, transfer);
    return true;
  }
  return acquire_slow(thread, number, request, access, transfer, refusal, error);
}

bool Engine::try_acquire(ThreadContext& thread, int number, const CallPoint& call, Range request,
                         Access access, Transfer& transfer) {
  see_events();
  Region* region = domain(number).try_hit(request, access, thread.recent);
  if (!region) return false;
  begin_transfer(thread, number, call, request, access, transfer);
  hit(thread, region, call, transfer);
  return true;
}

bool Engine::acquire_slow(ThreadContext& thread, int number, Range request, Access access, Transfer& transfer,
                          Refusal refusal, Error* error) {
  if (!is_possible(request)) [[unlikely]]
    return refuse_impossible(thread, transfer, refusal, error);
  ThreadCounters& counters = thread.counters[number];
  Record& record = transfer.record;
  Domain::Ticket ticket;
  ticket.pages = request.to_pages();
  ticket.access = access;
  const auto step = acquire_by_steps(thread, ticket, transfer);

  if (step == Domain::Step::refused) {
    if (error) *error = ticket.error;
    record.outcome = runlog::Outcome::bounced;
    counters.bounced.add(1);
    counters.bounced_bytes.add(record.bytes);
    if (refusal == Refusal::charge) {
      charge_bounce(thread, transfer, ticket.error);
      return true;
    }
    // The use is over as far as Pinion sees it, but retention learns from it, except where memory was
    // missing.
    if (ticket.error.code == EFAULT) record.kind = runlog::EventKind::none;
    release(thread, transfer);
    return false;
  }
  (ticket.registered_here                    ? counters.misses
   : record.outcome == runlog::Outcome::wait ? counters.waits
                                             : counters.hits)
      .add(1);
  thread.recent.remember(request.begin, ticket.region);
  return true;
}

Domain::Step Engine::acquire_by_steps(ThreadContext& thread, Domain::Ticket& ticket, Transfer& transfer) {
  HeldSignals held;
  check_hooks();
  Record& record = transfer.record;
  const int number = record.domain;
  ThreadCounters& counters = thread.counters[number];
  const Ticks begin = ticks_now();
  Ticks in_device = 0;
  bool waited = false;
  const auto step = run_ticket(
      domain(number), ticket, Actor::application, waited,
      [&](Range pages, bool registration, const Error& refused, Time from, Time to) {
        const Calibration& scale = calibration();
        Record call = record;
        call.begin = begin + scale.to_ticks(from - scale.to_time(begin));
        call.end = begin + scale.to_ticks(to - scale.to_time(begin));
        call.address = pages.begin;
        call.bytes = pages.bytes();
        call.kind = registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
        call.flags = refused ? runlog::kFailed : 0;
        push(thread, call);
        in_device += call.end - call.begin;
        count_device_call(counters, registration, refused);
      },
      [this](Range pages) { return watch(pages); }, [&](auto&& wait) { held.rest(wait); });
  const Ticks all = ticks_now() - begin;
  record.wait = all;
  counters.registration_ticks.add(in_device);
  if (all > in_device) counters.wait_ticks.add(all - in_device);
  if (step == Domain::Step::refused) return step;

  // Before signals are let through: the transfer, and so the caller, has the lease.
  record.region = {ticket.region, ticket.region->generation()};
  record.outcome = ticket.registered_here ? runlog::Outcome::miss
                   : waited               ? runlog::Outcome::wait
                                          : runlog::Outcome::hit;
  if (options_.retention == RetentionKind::lru && ticket.registered_here) {
    for (Region* victim : domain(number).begin_trim()) retire_claimed_here(thread, number, victim);
  }
  return step;
}

bool Engine::refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error) {
  Record& record = transfer.record;
  if (error)
    *error = Error::make(EFAULT,
                         "memory %#llx-%#llx cannot be: it is larger than this machine's memory, or beyond "
                         "the address space",
                         static_cast<unsigned long long>(record.address),
                         static_cast<unsigned long long>(record.address + record.bytes));
  ThreadCounters& counters = thread.counters[record.domain];
  counters.acquired_bytes.add(-record.bytes);  // begin_transfer() has added them
  counters.bounced.add(1);
  record.bytes = 0;
  record.kind = runlog::EventKind::none;
  if (refusal == Refusal::charge) return true;
  release(thread, transfer);
  return false;
}

void Engine::charge_bounce(ThreadContext& thread, Transfer& transfer, const Error& why) {
  if (!bounce_reported_.exchange(true))
    std::fprintf(stderr, "pinion: %s; %s (said once)\n", why.message,
                 spends_modelled_time_
                     ? "such transfers take the time of a copy instead"
                     : "the MPI library registers such memory itself, Pinion holds nothing, and the report "
                       "charges the time of a copy");
  // The transfer itself is made by the layer below, which Pinion cannot redirect to a bounce buffer: the copy
  // that one would need is charged as time, so that going without registration is never free (DESIGN 2).
  const auto ns = static_cast<double>(transfer.record.bytes) / copy_speed();
  const Ticks begin = ticks_now();
  const Ticks cost = calibration().to_ticks(static_cast<Duration>(ns));
  if (spends_modelled_time_) {
    while (ticks_now() - begin < cost) StdAtomics::relax();
  } else {
    transfer.record.flags |= runlog::kCharged;
  }
  thread.counters[transfer.record.domain].bounce_ticks.add(cost);
}

void Engine::release(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  Record& record = transfer.record;
  record.end = ticks_now();
  Region* region = record.region.region;
  if (region) {
    region->used(record.begin, record.end);
    if (region->memory_changed.load(std::memory_order_relaxed)) [[unlikely]]
      record.flags |= runlog::kMemoryGone;
    const auto released = domain(record.domain).release(region);
    if ((retire_at_release_ || fork_gate_.is_closed()) && released == RegionWord::Released::idle)
      retire_now(thread, record.domain, record.region);
    if (released == RegionWord::Released::idle_doomed) [[unlikely]] {
      // The memory went away under the lease: the helper's work, unless nothing may be kept.
      doomed_bytes_.fetch_add(region->range().bytes(), std::memory_order_relaxed);
      brackets_.sight.blind() ? reap_now(thread, record.domain) : expect_reaping();
    }
  }
  push(thread, record);
  if (transfer.bookkeeping) {
    ThreadCounters& counters = thread.counters[record.domain];
    counters.bookkeeping_ticks.add(transfer.bookkeeping + (ticks_now() - record.end));
    counters.bookkeeping_samples.add(1);
  }
}

void Engine::release_after_stop(Transfer& transfer) {
  transfer.active = false;
  const RegionRef ref = transfer.record.region;
  if (!ref.region || ::getpid() != process_) return;
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  DomainSlot& slot = *domains_[transfer.record.domain];
  slot.domain->release(ref.region);
  while (Region* doomed = slot.domain->begin_reap()) retire_claimed(*slot.domain, doomed, Actor::application);
  if (Region* idle = slot.domain->begin_retire(ref)) retire_claimed(*slot.domain, idle, Actor::application);
  drop_device(slot);
  spare_body();
}

void Engine::drop_devices() {
  const HeldSignals held;
  std::lock_guard lock(domains_mutex_);
  for (int i = 0; i < domain_count(); ++i) drop_device(*domains_[static_cast<std::size_t>(i)]);
  spare_body();
}

namespace {

constinit std::mutex g_spare_mutex;  ///< guards the list of spare bodies

/// A domain outlives its engine.
Clock& process_clock() {
  static RealClock clock;
  return clock;
}

}  // namespace

Engine::Body* Engine::spare_bodies_ = nullptr;

Engine::Body& Engine::take_body() {
  Body* body = nullptr;
  {
    std::lock_guard lock(g_spare_mutex);
    body = spare_bodies_;
    if (body) spare_bodies_ = body->next_spare;
  }
  if (!body) return *new Body;
  body->events.forget();
  body->slots_used = 0;
  body->told = {};
  body->lateness = {};
  return *body;
}

void Engine::spare_body() {
  if (spared_) return;
  for (std::size_t i = 0; i < body_.slots_used; ++i) {
    const DomainSlot& slot = *body_.slots[i];
    if (slot.device || slot.domain->region_count() > 0) return;
  }
  spared_ = true;
  std::lock_guard lock(g_spare_mutex);
  body_.next_spare = spare_bodies_;
  spare_bodies_ = &body_;
}

void Engine::forget_bodies_after_fork() {
  new (&g_spare_mutex) std::mutex;
  spare_bodies_ = nullptr;
}

Engine::DomainSlot& Engine::new_slot(std::unique_ptr<Device> device) {
  if (body_.slots_used == body_.slots.size()) {
    body_.slots.push_back(std::make_unique<DomainSlot>(static_cast<int>(body_.slots_used), meter_));
    DomainSlot& slot = *body_.slots.back();
    slot.domain = std::make_unique<Domain>(*device, *budget_, brackets_, process_clock(), &slot.meter);
  }
  DomainSlot& slot = *body_.slots[body_.slots_used++];
  slot.domain->reopen(*device, *budget_);
  slot.device = std::move(device);
  slot.open = true;
  slot.meter.restart();
  new (&slot.by_helper) ThreadCounters;
  slot.modelled_busy_seconds = 0;
  slot.costs = {};
  return slot;
}

void Engine::drop_device(DomainSlot& slot) {
  if (!slot.device || slot.domain->region_count() > 0) return;
  slot.modelled_busy_seconds = slot.device->modelled_busy_seconds();
  slot.device.reset();
}

void Engine::retire_now(ThreadContext& thread, int number, RegionRef ref) {
  const HeldSignals held;
  if (Region* region = domain(number).begin_retire(ref)) retire_claimed_here(thread, number, region);
}

void Engine::let_idle_go(ThreadContext& thread) {
  const HeldSignals held;
  for (int i = 0; i < domain_count(); ++i)
    for (const RegionRef& idle : domain(i).idle_regions()) retire_now(thread, i, idle);
}

void Engine::reap_now(ThreadContext& thread, int number) {
  const HeldSignals held;
  while (Region* region = domain(number).begin_reap()) retire_claimed_here(thread, number, region);
}

void Engine::retire_claimed_here(ThreadContext& thread, int number, Region* region) {
  const Range pages = region->range();
  Record call;
  call.begin = ticks_now();
  const auto retired = retire_claimed(domain(number), region, Actor::application, ticks_now);
  call.end = retired.end;
  call.flags = retired.error ? runlog::kFailed : 0;
  call.address = pages.begin;
  call.bytes = pages.bytes();
  call.kind = runlog::EventKind::deregistration;
  call.domain = static_cast<std::uint8_t>(number);
  push(thread, call);
  count_device_call(thread.counters[number], false, retired.error);
  thread.counters[number].registration_ticks.add(call.end - call.begin);
}

void Engine::push(ThreadContext& thread, const Record& record) {
  const std::size_t fill = thread.ring.push(record);
  // A system call only when the ring is three quarters full, or the helper sleeps without end.
  const std::uint32_t asleep = asleep_.load(std::memory_order_relaxed);
  if (asleep == 2 || (asleep == 1 && fill >= thread.ring.capacity() * 3 / 4)) [[unlikely]]
    wake_helper();
}

double Engine::copy_speed() {
  double known = copy_bytes_per_ns_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  known = measure_copy_speed();
  copy_bytes_per_ns_.store(known, std::memory_order_relaxed);
  return known;
}

// ---- memory events ----

Error Engine::watch(Range pages) {
  // The helper may hear of the transfer only when the memory has gone again.
  events_.mark(pages);
  return monitor_->watch(pages);
}

void Engine::on_memory_change_begin(Range range) {
  brackets_.open(range);
  fabric_monitor::on_memory_change(range);
  Engine* engine = running();
  if (!engine) return;
  engine->doom(range);
  engine->events_.post(range);
  engine->memory_events_.fetch_add(1, std::memory_order_relaxed);
}

void Engine::on_memory_change_end(Range range) {
  brackets_.close(range);
  if (Engine* engine = running()) engine->expect_reaping();
}

void Engine::expect_reaping() {
  if (doomed_bytes_.load(std::memory_order_relaxed) < kMuchDoomed) return;
  if (asleep_.load(std::memory_order_relaxed) != 0) wake_helper();
}

void Engine::on_memory_appeared(Range range) {
  fabric_monitor::on_memory_change(range);
  if (Engine* engine = running()) engine->doom(range);
}

void Engine::doom(Range range) {
  const int count = domain_count();
  std::size_t doomed = 0;
  for (int i = 0; i < count; ++i) doomed += domain(i).doom(range);
  if (doomed) doomed_bytes_.fetch_add(doomed, std::memory_order_relaxed);
}

void Engine::on_sight_lost() {
  brackets_.sight.lost();
  constexpr Range kEverything{0, ~Address{0}};
  on_memory_change_begin(kEverything);
  on_memory_change_end(kEverything);
}

// ---- counters ----

namespace {

void add(runlog::Counters& sum, const ThreadCounters& c) {
  const Calibration& scale = calibration();
  const auto ns = [&](const Counter& ticks) {
    return static_cast<std::uint64_t>(scale.to_duration(ticks.get()));
  };
  sum.acquires += c.acquires.get();
  sum.hits += c.hits.get();
  sum.waits += c.waits.get();
  sum.misses += c.misses.get();
  sum.bounced += c.bounced.get();
  sum.observed += c.observed.get();
  sum.acquired_bytes += c.acquired_bytes.get();
  sum.bounced_bytes += c.bounced_bytes.get();
  sum.registrations += c.registrations.get();
  sum.deregistrations += c.deregistrations.get();
  sum.registration_failures += c.registration_failures.get();
  sum.wait_ns += ns(c.wait_ticks);
  sum.registration_ns += ns(c.registration_ticks);
  sum.bounce_ns += ns(c.bounce_ticks);
  sum.bookkeeping_ns += ns(c.bookkeeping_ticks);
  sum.bookkeeping_samples += c.bookkeeping_samples.get();
}

}  // namespace

runlog::Counters Engine::counters(int number) {
  const HeldSignals held;
  runlog::Counters sum{};
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next)
    add(sum, thread->counters[number]);
  const DomainSlot& slot = *domains_[static_cast<std::size_t>(number)];
  add(sum, slot.by_helper);
  sum.registered_now_bytes = slot.domain->registered_bytes();
  sum.registered_peak_bytes = slot.meter.peak();
  sum.regions_now = slot.domain->region_count();
  return sum;
}

runlog::Counters Engine::counters() {
  const HeldSignals held;
  runlog::Counters sum;
  {
    std::lock_guard lock(body_.told_mutex);
    sum = body_.told;
  }
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    for (const ThreadCounters& counters : thread->counters) add(sum, counters);
    sum.records_dropped += thread->ring.dropped();
  }
  sum.records_dropped -= dropped_before_;
  sum.memory_events = memory_events_.load(std::memory_order_relaxed);
  double busy = 0;
  for (int i = 0; i < domain_count(); ++i) {
    const DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    add(sum, slot.by_helper);
    busy += slot.device ? slot.device->modelled_busy_seconds() : slot.modelled_busy_seconds;
  }
  sum.modelled_busy_ns = static_cast<std::uint64_t>(busy * 1e9);
  meter_.read(clock_.now(),
              [&](const runlog::Series& series, std::int64_t regions, std::int64_t peak_regions) {
                sum.registered_peak_bytes = series.peak();
                sum.registered_now_bytes = series.level();
                sum.registered_byte_ns = series.byte_ns();
                sum.regions_now = static_cast<std::uint64_t>(regions);
                sum.regions_peak = static_cast<std::uint64_t>(peak_regions);
              });
  return sum;
}

}  // namespace pinion
