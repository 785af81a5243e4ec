#include "engine/engine.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

#include "device/make.h"
#include "monitor/libc_hooks.h"
#include "registry/blocking.h"

namespace pinion {

std::atomic<Engine*> Engine::running_{nullptr};

namespace {

void hook_begin(Range range) {
  if (Engine* engine = Engine::running()) engine->on_memory_change_begin(range);
}
void hook_end(Range range) {
  if (Engine* engine = Engine::running()) engine->on_memory_change_end(range);
}

}  // namespace

Engine::Engine(const Options& options, const JobPlace& place)
    : options_(options), place_(place), retire_at_release_(options.retention == RetentionKind::on_demand) {}

// ---- start ----

Error Engine::start(const Options& options, const JobPlace& place, const std::string& command) {
  if (running()) return Error::make(EBUSY, "an engine runs in this process already");
  calibration();
  DeviceResult made = make_device(options.device, options.nic);
  if (made.error) return made.error;

  // Never freed: a thread may be inside it when the run ends.
  auto* engine = new Engine(options, place);
  engine->budget_ = std::make_unique<Budget>(
      find_limits(options.limit, options.limit_regions, made.device->caps(), place.local_ranks));
  Error error;
  const std::string device_text = made.device->description();
  engine->add_domain(std::move(made.device), error);
  if (error) return error;

  static std::once_flag fork_handler;
  std::call_once(fork_handler, [] {
    // The child has neither the helper nor the parent's registrations: it runs as without Pinion.
    pthread_atfork(nullptr, nullptr, [] {
      Engine* parent = running_.exchange(nullptr, std::memory_order_acq_rel);
      for (int i = 0; parent && i < parent->domain_count(); ++i) parent->domain(i).device().abandon_after_fork();
      forget_this_thread();
    });
  });

  // Counters and records of an earlier run in this process are not this run's.
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    new (&thread->counters) ThreadCounters;
    for (Record old; thread->ring.pop(old);) {
    }
    engine->dropped_before_ += thread->ring.dropped();
  }
  engine->dropped_seen_ = engine->dropped_before_;

  running_.store(engine, std::memory_order_release);
  engine->watch_memory();
  const Time now = engine->clock_.now();
  engine->meter_.start(now);
  if (!options.log.empty()) {
    runlog::RunInfo info;
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
    info.memcpy_bytes_per_ns = engine->memcpy_bandwidth();
    info.start = now;
    // A log that cannot be written costs the log, not the run.
    if (Error failed = engine->log_.open(options.log, info, options.log_size))
      std::fprintf(stderr, "pinion: no log: %s\n", failed.message);
  }
  engine->start_helper();
  return {};
}

int Engine::add_domain(std::unique_ptr<Device> device, Error& error) {
  std::lock_guard lock(domains_mutex_);
  const int number = domain_count_.load(std::memory_order_relaxed);
  if (number == kMostDomains) {
    error = Error::make(ENOSPC, "at most %d domains can be open in one process", kMostDomains);
    return -1;
  }
  auto slot = std::make_unique<DomainSlot>();
  slot->device = std::move(device);
  slot->domain = std::make_unique<Domain>(*slot->device, *budget_, brackets_, clock_, &meter_);
  if (options_.retention == RetentionKind::lru) slot->domain->set_keep_bytes(options_.lru_size);
  if (options_.retention == RetentionKind::helper || options_.retention == RetentionKind::observe) {
    slot->predictor = make_predictor(options_.predictor, static_cast<unsigned>(options_.window));
    slot->retention = std::make_unique<HelperRetention>(
        *slot->domain, *slot->predictor, slot->costs,
        HelperRetention::Settings{.act = options_.retention == RetentionKind::helper});
  }
  domains_[static_cast<std::size_t>(number)] = std::move(slot);
  domain_count_.store(number + 1, std::memory_order_release);
  return number;
}

void Engine::watch_memory() {
  install_libc_hooks({hook_begin, hook_end});
  const HookReport report = self_test();
  if (!report.complete) keep_nothing(report.error);
}

void Engine::keep_nothing(const Error& why) {
  retire_at_release_.store(true, std::memory_order_release);
  std::fprintf(stderr,
               "pinion: memory events cannot all be seen (%s): no registration is kept beyond its transfer; "
               "`pinion doctor` says more\n",
               why.message);
}

void Engine::check_hooks() {
  if (hooks_intact()) [[likely]] return;
  // A library loaded since (UCX, for one) put its own hooks over ours. What went by meanwhile was not seen: nothing that
  // was registered before can be believed.
  const HookReport report = reinstall_hooks();
  constexpr Range kEverything{0, ~Address{0}};
  on_memory_change_begin(kEverything);
  on_memory_change_end(kEverything);
  if (!report.complete) keep_nothing(report.error);
}

// ---- the critical path ----

void Engine::acquire(ThreadContext& thread, int number, const CallPoint& call, Range request, Access access,
                     Transfer& transfer, Error* error) {
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
  record.call = call.kind;
  record.access = access;
  record.flags = 0;
  record.domain = static_cast<std::uint8_t>(number);
  thread.counters.acquires.add(1);
  thread.counters.acquired_bytes.add(request.bytes());

  if (options_.retention == RetentionKind::observe) {
    record.outcome = runlog::Outcome::observed;
    thread.counters.observed.add(1);
    return;
  }
  if (Region* region = domain(number).try_hit(request, access, thread.recent)) [[likely]] {
    record.outcome = runlog::Outcome::hit;
    record.region = {region, region->generation()};
    thread.counters.hits.add(1);
    // Every 32nd acquire of a thread is measured: reading the counter each time would cost as much as what it
    // measures.
    if (thread.counters.acquires.get() % 32 == 0) transfer.bookkeeping = ticks_now() - call.time;
    return;
  }
  acquire_slow(thread, number, request, access, transfer, error);
}

void Engine::acquire_slow(ThreadContext& thread, int number, Range request, Access access, Transfer& transfer,
                          Error* error) {
  check_hooks();
  Record& record = transfer.record;
  const Ticks begin = ticks_now();
  Ticks in_device = 0;
  Domain::Ticket ticket;
  ticket.pages = request.to_pages();
  ticket.access = access;
  bool waited = false;
  const auto step = run_ticket(domain(number), ticket, Actor::application, waited,
                               [&](Range pages, bool registration, bool failed, Time from, Time to) {
                                 const Calibration& scale = calibration();
                                 Record call = record;
                                 call.begin = begin + scale.to_ticks(from - scale.to_time(begin));
                                 call.end = begin + scale.to_ticks(to - scale.to_time(begin));
                                 call.address = pages.begin;
                                 call.bytes = pages.bytes();
                                 call.kind = registration ? runlog::EventKind::registration
                                                          : runlog::EventKind::deregistration;
                                 call.flags = failed ? runlog::kFailed : 0;
                                 push(thread, call);
                                 in_device += call.end - call.begin;
                                 (failed         ? thread.counters.registration_failures
                                  : registration ? thread.counters.registrations
                                                 : thread.counters.deregistrations)
                                     .add(1);
                               });
  const Ticks all = ticks_now() - begin;
  record.wait = all;
  thread.counters.registration_ticks.add(in_device);
  if (all > in_device) thread.counters.wait_ticks.add(all - in_device);

  if (step == Domain::Step::refused) {
    bounce(thread, transfer, ticket.error, error);
    return;
  }
  record.region = {ticket.region, ticket.region->generation()};
  record.outcome = ticket.registered_here ? runlog::Outcome::miss
                   : waited               ? runlog::Outcome::wait
                                          : runlog::Outcome::hit;
  (ticket.registered_here ? thread.counters.misses
   : waited               ? thread.counters.waits
                          : thread.counters.hits)
      .add(1);
  thread.recent.remember(request.begin, ticket.region);
  if (options_.retention == RetentionKind::lru && ticket.registered_here) {
    for (Region* victim : domain(number).begin_trim()) retire_claimed_here(thread, number, victim);
  }
}

void Engine::bounce(ThreadContext& thread, Transfer& transfer, const Error& why, Error* error) {
  if (error) *error = why;
  if (!bounce_reported_.exchange(true)) std::fprintf(stderr, "pinion: %s (said once)\n", why.message);
  // The transfer itself is made by the layer below, which Pinion cannot redirect to a bounce buffer: the copy
  // that one would need is charged as time, so that going without registration is never free (DESIGN 2).
  const auto ns = static_cast<double>(transfer.record.bytes) / memcpy_bandwidth();
  const Ticks begin = ticks_now();
  const Ticks cost = calibration().to_ticks(static_cast<Duration>(ns));
  while (ticks_now() - begin < cost) StdAtomics::relax();
  transfer.record.outcome = runlog::Outcome::bounced;
  thread.counters.bounced.add(1);
  thread.counters.bounced_bytes.add(transfer.record.bytes);
  thread.counters.bounce_ticks.add(cost);
}

void Engine::release(ThreadContext& thread, Transfer& transfer) {
  transfer.active = false;
  Record& record = transfer.record;
  record.end = ticks_now();
  Region* region = record.region.region;
  if (region) {
    region->last_use.store(record.end, std::memory_order_relaxed);
    const auto released = domain(record.domain).release(region);
    if (retire_at_release_.load(std::memory_order_relaxed) && released == RegionWord::Released::idle)
      retire_now(thread, record.domain, record.region);
  }
  push(thread, record);
  if (transfer.bookkeeping) {
    thread.counters.bookkeeping_ticks.add(transfer.bookkeeping + (ticks_now() - record.end));
    thread.counters.bookkeeping_samples.add(1);
  }
}

void Engine::retire_now(ThreadContext& thread, int number, RegionRef ref) {
  if (Region* region = domain(number).begin_retire(ref)) retire_claimed_here(thread, number, region);
}

void Engine::retire_claimed_here(ThreadContext& thread, int number, Region* region) {
  const Range pages = region->range();
  Record call;
  call.begin = ticks_now();
  retire_claimed(domain(number), region, Actor::application);
  call.end = ticks_now();
  call.address = pages.begin;
  call.bytes = pages.bytes();
  call.kind = runlog::EventKind::deregistration;
  call.domain = static_cast<std::uint8_t>(number);
  push(thread, call);
  thread.counters.deregistrations.add(1);
  thread.counters.registration_ticks.add(call.end - call.begin);
}

void Engine::push(ThreadContext& thread, const Record& record) {
  const std::size_t fill = thread.ring.push(record);
  // A system call only when the ring is three quarters full, or the helper sleeps without end.
  const std::uint32_t asleep = asleep_.load(std::memory_order_relaxed);
  if (asleep == 2 || (asleep == 1 && fill >= thread.ring.capacity() * 3 / 4)) [[unlikely]]
    wake_helper();
}

double Engine::memcpy_bandwidth() {
  double known = memcpy_bytes_per_ns_.load(std::memory_order_relaxed);
  if (known > 0) return known;
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  Ticks best = ~Ticks{0};
  for (int i = 0; i < 3; ++i) {
    const Ticks begin = ticks_now();
    std::memcpy(to.data(), from.data(), kBytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    best = std::min(best, ticks_now() - begin);
  }
  known = static_cast<double>(kBytes) /
          static_cast<double>(std::max<Duration>(1, calibration().to_duration(best)));
  memcpy_bytes_per_ns_.store(known, std::memory_order_relaxed);
  return known;
}

// ---- memory events ----

void Engine::on_memory_change_begin(Range range) {
  brackets_.open(range);
  const int count = domain_count();
  for (int i = 0; i < count; ++i) domain(i).doom(range);
  events_.post(range);
  memory_events_.fetch_add(1, std::memory_order_relaxed);
}

void Engine::on_memory_change_end(Range range) { brackets_.close(range); }

// ---- counters ----

runlog::Counters Engine::counters() {
  runlog::Counters sum;
  {
    std::lock_guard lock(told_mutex_);
    sum = told_;
  }
  const Calibration& scale = calibration();
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    const ThreadCounters& c = thread->counters;
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
    sum.records_dropped += thread->ring.dropped();
  }
  sum.records_dropped -= dropped_before_;
  sum.memory_events = memory_events_.load(std::memory_order_relaxed);
  double busy = 0;
  for (int i = 0; i < domain_count(); ++i) busy += domain(i).device().modelled_busy_seconds();
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
