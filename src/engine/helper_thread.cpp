// The helper thread of the engine: drains the rings, lets retention decide, makes its device calls, keeps the
// log.
#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstdio>

#include "base/held_signals.h"
#include "engine/engine.h"
#include "engine/site_names.h"
#include "registry/blocking.h"

namespace pinion {

namespace {

constexpr Duration kUpdateEvery = 200 * kMillisecond;
constexpr Duration kSampleEvery = 50 * kMillisecond;  // reading the kernel's figures takes some 50 us

std::uint64_t thread_cpu_ns() {
  timespec ts{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
  return static_cast<std::uint64_t>(ts.tv_sec) * 1000000000u + static_cast<std::uint64_t>(ts.tv_nsec);
}

// The helper must not fight for the core that its application thread is bound to (Open MPI binds ranks by
// default), and must run soon after its timer fires although the cores are busy.
void settle_thread() {
  ::prctl(PR_SET_NAME, "pinion-helper");
  ::prctl(PR_SET_TIMERSLACK, 1);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  ::sched_setaffinity(0, sizeof all, &all);  // the kernel keeps what the cpuset allows
  // A short slice (Linux 6.12+) makes a waking thread preempt long-running ones early; older kernels ignore
  // it.
  struct {
    std::uint32_t size = 48, policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100 * kMicrosecond, deadline = 0, period = 0;
  } attributes;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value, const timespec* until) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation | FUTEX_PRIVATE_FLAG, value,
                   until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

Error Engine::start_helper() {
  pinned_count_.open();
  pinned_at_start_ = pinned_count_.read();
  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Error error;
  helper_runs_.store(1, std::memory_order_relaxed);
  try {
    helper_ = std::thread([this] { helper_main(); });
  } catch (const std::system_error& failed) {
    helper_runs_.store(0, std::memory_order_relaxed);
    error = Error::make(EAGAIN,
                        "the helper thread cannot be started (%s): allow one thread more (`ulimit -u`, the "
                        "cgroup's pids.max, memory for its stack)",
                        failed.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void Engine::ask_helper_to_end() {
  stopping_.store(true, std::memory_order_release);
  wake_helper();
}

void Engine::stop() {
  const HeldSignals held;
  Engine* engine = running();
  if (!engine) return;
  engine->ask_helper_to_end();
  engine->helper_.join();
  running_.store(nullptr, std::memory_order_release);
  engine->forget_what_helper_knew();
  engine->leave_memory();
}

void Engine::stop_at_exit() {
  const HeldSignals held;
  Engine* engine = running();
  if (!engine) return;
  engine->ask_helper_to_end();
  // The helper finds Pinion's locks free (held_signals.h). But a handler that exits may have interrupted
  // malloc or the loader, whose locks the helper may need as well.
  if (!engine->await_end_of_helper()) {
    static constexpr char kText[] =
        "pinion: the process ends within malloc or the loader: its log lacks the last moments\n";
    static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
  }
  running_.store(nullptr, std::memory_order_release);
  // The hooks stay: taking them away takes locks, and the process is gone in a moment.
}

bool Engine::await_end_of_helper() {
  constexpr Duration kPatience = 3 * kSecond, kMost = 60 * kSecond;
  const Time begin = clock_.now();
  std::uint32_t before = progress_.load(std::memory_order_relaxed);
  Time deadline = begin + kPatience;
  while (helper_runs_.load(std::memory_order_acquire) != 0) {
    const timespec until{deadline / kSecond, deadline % kSecond};
    futex(&helper_runs_, FUTEX_WAIT_BITSET, 1, &until);
    const Time now = clock_.now();
    if (now < deadline) continue;
    const std::uint32_t done = progress_.load(std::memory_order_relaxed);
    if (done == before || now - begin > kMost) return false;
    before = done;
    deadline = now + kPatience;
  }
  return true;
}

void Engine::helper_main() {
  settle_thread();
  cpus_allowed_ = cpus_run_on_ = node::cpus_of(0);
  looks_ = LookSchedule(options_.poll, clock_.now());
  while (!stopping_.load(std::memory_order_acquire)) {
    drain();
    serve_closing();
    attend_node(clock_.now());
    act();
    const Time now = clock_.now();
    sample_pinned_growth(now);
    if (now - last_update_ >= kUpdateEvery) {
      sample_pinned();
      check_hooks();
      report_exposure();
      // No release finds a region idle whose last count was a refused hit's.
      if (retire_at_release_) retire_all_idle();
      tell();
      const runlog::Counters all = counters();
      const double books = all.bookkeeping_samples
                               ? static_cast<double>(all.bookkeeping_ns) * static_cast<double>(all.acquires) /
                                     static_cast<double>(all.bookkeeping_samples)
                               : 0;
      const std::uint64_t charged = spends_modelled_time_ ? 0 : all.bounce_ns;
      time_budget_.kept_books(std::llround(books + static_cast<double>(charged)));
      publish_log(all, now);
      last_update_ = now;
    }
    sleep_until(next_wake());
  }
  end_of_run();
  helper_runs_.store(0, std::memory_order_release);
  futex(&helper_runs_, FUTEX_WAKE_BITSET, INT_MAX, nullptr);
}

// ---- records ----

void Engine::drain() {
  batch_.clear();
  // Before the rings: whatever was used before its memory went is then in this batch too, or in an earlier
  // one.
  bool events_lost = false;
  EventBoard::Event event;
  while (events_.take(event, events_lost)) {
    Drained drained{};
    drained.record.kind = runlog::EventKind::memory_event;
    drained.record.begin = drained.record.end = event.time;
    drained.record.address = event.range.begin;
    drained.record.bytes = event.range.bytes();
    batch_.push_back(drained);
  }
  std::uint64_t dropped = 0;
  std::size_t fullest = 0;
  for (ThreadContext* thread = all_threads(); thread; thread = thread->next) {
    Drained drained;
    drained.thread = thread->index;
    const std::size_t before = batch_.size();
    while (thread->ring.pop(drained.record)) batch_.push_back(drained);
    fullest = std::max(fullest, batch_.size() - before);
    dropped += thread->ring.dropped();
  }
  if (events_lost) take_memory_change({0, ~Address{0}}, clock_.now());
  // Rings are in order of each thread; together they are put in order of time.
  std::stable_sort(batch_.begin(), batch_.end(),
                   [](const Drained& a, const Drained& b) { return a.record.end < b.record.end; });
  for (Drained& drained : batch_) take(drained.record, drained.thread);

  const Time now = clock_.now();
  looks_.pace(fullest > decltype(ThreadContext::ring)::capacity() / 4);
  if (!batch_.empty()) looks_.found(now);
  if (dropped != dropped_seen_) {
    dropped_seen_ = dropped;
    for (int i = 0; i < domain_count(); ++i) {
      if (auto& retention = domains_[static_cast<std::size_t>(i)]->retention) retention->sweep();
    }
  }
}

void Engine::take(Record& record, std::uint16_t thread) {
  const Calibration& scale = calibration();
  const Range range{record.address, record.address + record.bytes};
  const Time begin = scale.to_time(record.begin);
  const Time end = scale.to_time(record.end);
  DomainSlot& slot = *domains_[record.domain];
  switch (record.kind) {
    case runlog::EventKind::lease: {
      const Range pages = range.to_pages();
      const Duration waited = scale.to_duration(record.wait), delayed = scale.to_duration(record.delayed);
      Duration first = 0;  // what leave-pinned would have waited
      Coverage& leave_pinned = leave_pinned_[record.domain];
      if (const std::size_t fresh = leave_pinned.would_add(pages)) {
        const Duration expected = slot.costs.registration.expected(fresh / page_size());
        leave_pinned_registration_ns_ += static_cast<double>(expected);
        first = leave_pinned_wait(waited, expected,
                                  static_cast<double>(fresh) / static_cast<double>(pages.bytes()));
        leave_pinned.add(pages);
        events_.mark(pages);  // for those that registered nothing (watch())
      }
      ++transfers_;
      time_budget_.waited(std::size_t{thread} * kMostDomains + record.domain, delayed + waited, first);
      if (slot.retention && has_helper_) slot.retention->use(record, begin, thread, delayed, end, waited);
      break;
    }
    case runlog::EventKind::registration:
      if (!(record.flags & runlog::kFailed)) slot.costs.registration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::deregistration:
      if (!(record.flags & runlog::kFailed)) slot.costs.deregistration.observe(range.pages(), end - begin);
      break;
    case runlog::EventKind::memory_event:
      take_memory_change(range, end);
      return;
    default:  // no record of a thread's
      return;
  }
  if (!log_.is_open()) return;
  if (record.site && known_sites_.insert(record.site).second) {
    CallFrames frames;
    if (call_site_frames(record.site, frames)) {
      std::uint64_t addresses[kMaxCallFrames];
      std::copy_n(frames.return_addresses, frames.depth, addresses);
      log_.add_site(record.site, addresses, frames.depth);
    }
  }
  runlog::Event event{};
  event.begin_ns = begin;
  event.end_ns = end;
  event.address = record.address;
  event.bytes = record.bytes;
  event.site = record.site;
  event.wait_ns = static_cast<std::uint64_t>(scale.to_duration(record.wait));
  event.peer = record.peer;
  event.thread = thread;
  event.kind = record.kind;
  event.call = static_cast<std::uint8_t>(record.call);
  event.outcome = record.outcome;
  event.flags = record.flags;
  event.access = static_cast<std::uint8_t>(record.access);
  event.domain = record.domain;
  log_.append(event);
}

void Engine::take_memory_change(Range range, Time time) {
  const Range pages{page_floor(range.begin),
                    range.end > ~Address{0} - page_size() ? range.end : page_ceil(range.end)};
  for (Coverage& of_domain : leave_pinned_) of_domain.erase(pages);
  for (int i = 0; i < domain_count(); ++i) {
    if (auto& retention = domains_[static_cast<std::size_t>(i)]->retention) retention->memory_event(pages);
  }
  runlog::Event event{};
  event.begin_ns = event.end_ns = time;
  // "Everything" ends where addresses do; a call that the kernel refuses may name anything.
  event.address = std::min(range.begin, kAddressEnd);
  event.bytes = std::clamp(range.end, event.address, kAddressEnd) - event.address;
  event.kind = runlog::EventKind::memory_event;
  event.peer = -1;
  log_.append(event);
}

void Engine::count_device_call(ThreadCounters& counters, bool registration, const Error& error) {
  if (registration)
    (error ? counters.registration_failures : counters.registrations).add(1);
  else if (!error)
    counters.deregistrations.add(1);
  else if (!failed_deregistration_reported_.exchange(true))
    std::fprintf(stderr,
                 "pinion: %s. The memory stays registered and counted; Pinion tries again (said once)\n",
                 error.message);
}

void Engine::note_device_call(DomainSlot& slot, Range pages, bool registration, const Error& error,
                              Time begin, Time end) {
  count_device_call(slot.by_helper, registration, error);
  progress_.fetch_add(1, std::memory_order_relaxed);
  runlog::Event event{};
  event.begin_ns = begin;
  event.end_ns = end;
  event.address = pages.begin;
  event.bytes = pages.bytes();
  event.peer = -1;
  event.kind = registration ? runlog::EventKind::registration : runlog::EventKind::deregistration;
  event.flags = static_cast<std::uint8_t>(runlog::kByHelper | (error ? runlog::kFailed : 0));
  event.domain = static_cast<std::uint8_t>(slot.number);
  log_.append(event);
}

// ---- retention ----

void Engine::act() {
  const int count = domain_count();
  doomed_bytes_.store(0, std::memory_order_relaxed);
  for (int i = 0; i < count; ++i) {
    DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    for (;;) {
      const ForkGate::Passage passage(fork_gate_);
      Region* const region = slot.domain->begin_reap();
      if (!region) break;
      const Range pages = region->range();
      const Time begin = clock_.now();
      const auto retired = retire_claimed(*slot.domain, region, Actor::helper);
      note_device_call(slot, pages, false, retired.error, begin, retired.end);
    }
    if (!slot.retention) continue;
    for (;;) {
      const ForkGate::Passage passage(fork_gate_);
      if (keeps_nothing_.load(std::memory_order_acquire)) slot.retention->stop_acting();
      const auto action = slot.retention->next(clock_.now());
      using Kind = HelperRetention::Action::Kind;
      if (action.kind == Kind::sleep) break;
      const Time begin = clock_.now();
      if (action.kind == Kind::deregister) {
        const auto [end, error] = retire_claimed(*slot.domain, action.region, Actor::helper);
        note_device_call(slot, action.pages, false, error, begin, end);
        slot.retention->done(action, {}, true, end - begin, end);
      } else {
        Domain::Ticket ticket;
        ticket.pages = action.pages;
        ticket.access = action.access;
        ticket.lease = false;
        bool waited = false;
        Duration took = 0;
        struct Refused {
          Range pages;
          Error error;
          Time from, to;
        };
        std::vector<Refused> refused;
        const auto step = run_ticket(
            *slot.domain, ticket, Actor::helper, waited,
            [&](Range pages, bool registration, const Error& error, Time from, Time to) {
              if (registration && error)
                refused.push_back({pages, error, from, to});
              else
                note_device_call(slot, pages, registration, error, from, to);
              if (registration && !error) took = to - from;
            },
            [this](Range pages) { return watch(pages); });
        const bool ok = step == Domain::Step::leased;
        // Memory that went, of which the word had not come yet when this was decided, is no failure.
        if (!refused.empty()) drain();
        if (ok || slot.retention->wants(action))
          for (const Refused& call : refused)
            note_device_call(slot, call.pages, true, call.error, call.from, call.to);
        slot.retention->done(action, ok ? RegionRef{ticket.region, ticket.region->generation()} : RegionRef{},
                             ok, took, clock_.now());
      }
      drain();
    }
  }
}

// ---- sleeping ----

Time Engine::next_wake() const {
  const Time now = clock_.now();
  Time wake = kNever;
  for (int i = 0; i < domain_count(); ++i) {
    const auto& retention = domains_[static_cast<std::size_t>(i)]->retention;
    if (retention) wake = std::min(wake, retention->next_deadline());
  }
  // Other strategies decide on the application's threads: only the log waits for records, and the rings hold
  // them.
  if ((options_.retention != RetentionKind::helper || !has_helper_) && !looks_.deep(now))
    return looks_.next_for_log(now, wake);
  return looks_.next(now, wake, registered_bytes());
}

std::size_t Engine::leave_pinned_bytes() const {
  std::size_t bytes = 0;
  for (const Coverage& of_domain : leave_pinned_) bytes += of_domain.bytes();
  return bytes;
}

std::size_t Engine::registered_bytes() const {
  std::size_t bytes = 0;
  for (int i = 0; i < domain_count(); ++i)
    bytes += domain_of_[static_cast<std::size_t>(i)]->registered_bytes();
  return bytes;
}

void Engine::sleep_until(Time wake) {
  const std::uint32_t state = looks_.deep(clock_.now()) ? 2 : 1;
  asleep_.store(state, std::memory_order_seq_cst);
  // Records pushed before the flag was seen have woken nobody; in deep sleep nothing else would.
  bool work = stopping_.load(std::memory_order_acquire) || closing_.load(std::memory_order_seq_cst) >= 0 ||
              doomed_bytes_.load(std::memory_order_relaxed) >= kMuchDoomed;
  for (ThreadContext* thread = all_threads(); thread && !work; thread = thread->next)
    work = thread->ring.size() > 0;
  if (!work) {
    timespec until{};
    if (wake != kNever) {
      until.tv_sec = wake / kSecond;
      until.tv_nsec = wake % kSecond;
    }
    futex(&asleep_, FUTEX_WAIT_BITSET, state, wake == kNever ? nullptr : &until);
    ++wakeups_;
    const Time now = clock_.now();
    if (wake != kNever && now >= wake) {
      body_.lateness.add(now - wake);
      for (int i = 0; i < domain_count(); ++i)
        domains_[static_cast<std::size_t>(i)]->costs.wake.observe(now - wake);
    }
  }
  asleep_.store(0, std::memory_order_relaxed);
}

void Engine::wake_helper() {
  asleep_.store(0, std::memory_order_release);
  futex(&asleep_, FUTEX_WAKE_BITSET, 1, nullptr);
}

// ---- telling ----

void Engine::tell() {
  runlog::Counters mine{};
  mine.helper_cpu_ns = thread_cpu_ns();
  mine.helper_wakeups = wakeups_;
  mine.lateness = body_.lateness;
  if (options_.retention == RetentionKind::helper) {
    time_budget_.advance(clock_.now());
    mine.budget_ns = static_cast<std::uint64_t>(time_budget_.allowed());
    mine.budget_spent_ns = time_budget_.lost();
    mine.budget_refused = time_budget_.refused();
  }
  mine.events_dropped = log_.events_dropped();
  mine.kernel_pinned_peak_bytes = pinned_peak_;
  mine.leave_pinned_bytes = leave_pinned_bytes();
  mine.leave_pinned_registration_ns = leave_pinned_registration_ns_;
  for (int i = 0; i < domain_count(); ++i) {
    const DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    if (const double per_page = slot.costs.registration.a(); per_page > 0)
      slot.domain->set_call_pages(slot.costs.registration.b() / per_page);
    if (slot.retention) slot.retention->score().add_to(mine);
  }
  std::lock_guard lock(body_.told_mutex);
  body_.told = mine;
}

void Engine::retire_idle(DomainSlot& slot) {
  const ForkGate::Passage passage(fork_gate_);
  retire_all(*slot.domain, Actor::helper, [&](Range pages, const Error& error, Time begin, Time end) {
    note_device_call(slot, pages, false, error, begin, end);
  });
}

void Engine::retire_all_idle() {
  for (int i = 0; i < domain_count(); ++i) retire_idle(*domains_[static_cast<std::size_t>(i)]);
}

void Engine::serve_closing() {
  const int number = closing_.load(std::memory_order_acquire);
  if (number < 0) return;
  DomainSlot& slot = *domains_[static_cast<std::size_t>(number)];
  if (slot.retention) slot.retention->memory_event({0, ~Address{0}});
  retire_idle(slot);
  closing_.store(-1, std::memory_order_release);
  closing_.notify_all();
}

void Engine::sample_pinned() {
  last_sample_ = clock_.now();
  sampled_at_bytes_ = std::max(sampled_at_bytes_, registered_bytes());
  const std::uint64_t pinned = pinned_count_.read();
  if (pinned > pinned_at_start_) pinned_peak_ = std::max(pinned_peak_, pinned - pinned_at_start_);
}

void Engine::sample_pinned_growth(Time now) {
  if (registered_bytes() > sampled_at_bytes_ && now - last_sample_ >= kSampleEvery) sample_pinned();
}

void Engine::keep_profile() {
  if (options_.profile.empty()) return;
  std::string most;  // of the domain that learnt most
  for (int i = 0; i < domain_count(); ++i) {
    const auto& predictor = domains_[static_cast<std::size_t>(i)]->predictor;
    std::string profile = predictor ? predictor->profile() : std::string();
    if (profile.size() > most.size()) most.swap(profile);
  }
  if (most.empty()) return;
  if (Error failed = write_profile(profile_path(options_.profile, place_.rank), most))
    std::fprintf(stderr, "pinion: profile: %s\n", failed.message);
}

void Engine::forget_what_helper_knew() {
  for (int i = 0; i < domain_count(); ++i) {
    DomainSlot& slot = *domains_[static_cast<std::size_t>(i)];
    slot.retention.reset();
    slot.predictor.reset();
  }
  std::vector<Drained>().swap(batch_);
  known_sites_ = {};
  leave_pinned_ = {};
  stable_sites_ = {};
  std::string().swap(profile_);
}

void Engine::publish_log(const runlog::Counters& all, Time now) {
  meter_.read(
      now, [&](const runlog::Series& series, std::int64_t, std::int64_t) { log_.update(all, series, now); });
}

void Engine::end_of_run() {
  drain();
  // Should the process end before the rest is done, its log ends with this state.
  tell();
  publish_log(counters(), clock_.now());
  keep_profile();
  sample_pinned();
  // Leases still out (requests that the program never completed) stay: their transfers may go on.
  retire_all_idle();
  // Who still holds leases keeps its share, until the process ends.
  if (budget_->bytes() == 0) leave_node();
  tell();
  const runlog::Counters all = counters();
  const std::uint64_t pinned = pinned_count_.read();
  pinned_count_.close();
  log_.for_each_site([](runlog::SiteEntry& site) { name_site(site); });
  const Time now = clock_.now();
  meter_.read(now, [&](const runlog::Series& series, std::int64_t, std::int64_t) {
    log_.finish(all, series, now, pinned > pinned_at_start_ ? pinned - pinned_at_start_ : 0);
  });
}

}  // namespace pinion
