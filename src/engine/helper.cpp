#include "engine/helper.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <csignal>
#include <system_error>

#include "base/on_monotonic.h"
#include "base/warning.h"
#include "engine/lease_path.h"
#include "placement/arena_figures.h"
#include "predict/played_schedule.h"
#include "retention/make.h"

namespace pinion {

namespace {

constexpr Duration kCheckEvery = 200 * kMillisecond;

// The helper must avoid the core to which its application thread is bound (Open MPI binds ranks by default).
// It must run soon after its timer fires although the cores are busy.
void settle_thread() {
  ::prctl(PR_SET_NAME, "pinion-helper");
  ::prctl(PR_SET_TIMERSLACK, 1);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  ::sched_setaffinity(0, sizeof all, &all);  // the kernel keeps the part within the cpuset
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

/// The kernel's number of a thread; 0: not known. The number of its CPU clock holds it (CPUCLOCK_PID).
pid_t number_of(pthread_t thread) {
  clockid_t clock{};
  return ::pthread_getcpuclockid(thread, &clock) == 0 ? ~(clock >> 3) : 0;
}

HelperShare::Settings share_of(const Options& options, const JobPlace& place) {
  const auto cores = std::max(1.0, static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)));
  const double ranks = std::max(1, place.local_ranks);
  return {.share = options.helper_share,
          .delay = HelperShare::delay_of(ranks, cores),
          .core_idle = ranks < cores};
}

}  // namespace

Helper::Helper(const Options& options, const JobPlace& place, RunMemory& memory, DomainTable& domains,
               LeasePath& leases, MemoryWatch& watch, RunCounters& counters, NodeMembership& node,
               HelperBell& bell, Clock& clock)
    : options_(options),
      memory_(memory),
      domains_(domains),
      leases_(leases),
      watch_(watch),
      counters_(counters),
      node_(node),
      bell_(bell),
      clock_(clock),
      desk_({.traits = traits_of(options.retention),
             .time_budget = {.share = options.time_budget, .credit = options.start_credit},
             .helper_share = share_of(options, place),
             .scale = calibration(),
             .poll = options.poll,
             .start = clock.now()}),
      profile_(options.profile, place.rank),
      log_(memory.meter),
      drain_(domains, memory.events, desk_, log_, clock),
      work_(domains, watch, counters, leases.fork_gate(), desk_, drain_, log_, clock),
      acts_(acts_at_start(options)) {}

void Helper::equip(DomainSlot& slot) {
  // A domain whose device registers nothing is only observed, even beside others that register.
  slot.kept.observed = !traits_of(options_.retention).registers || !slot.device->capabilities().registers;
  const RetentionKind kind = slot.kept.observed ? RetentionKind::observe : options_.retention;
  RetentionSettings settings{
      .kind = kind, .lru_bytes = options_.lru_size, .minimize_peak = options_.minimize == Minimize::peak};
  std::unique_ptr<Predictor> predictor;
  if (traits_of(kind).predicts) {
    predictor = played_predictor();
    if (!predictor)
      predictor = make_predictor(options_.predictor, static_cast<unsigned>(options_.window),
                                 static_cast<unsigned>(options_.period_window));
    if (profile_.wanted()) {
      settings.site_name = [this](std::uint64_t site) { return profile_.site_name(site); };
      profile_.begin(*predictor);
    }
  }
  slot.kept.retention = make_retention(std::move(settings), *slot.domain, std::move(predictor),
                                       slot.kept.costs, desk_.time_budget(), desk_.helper_share());
  desk_.add(slot.kept);
}

// ---- the thread ----

Error Helper::start(const runlog::RunInfo* log) {
  if (log) {
    if (Error failed = log_.open(options_.log, *log, options_.log_size)) warn("no log: %s", failed.message);
  }
  pinned_.start();
  // Signals belong to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  Error error;
  runs_.store(1, std::memory_order_relaxed);
  try {
    thread_ = std::thread([this] { main(); });
    load_.open(number_of(thread_.native_handle()));
    files_open_.store(1, std::memory_order_release);
    futex_wake(files_open_, 1);
  } catch (const std::system_error& failed) {
    runs_.store(0, std::memory_order_relaxed);
    error = Error::make(EAGAIN,
                        "the helper thread cannot be started (%s): allow one thread more (`ulimit -u`, the "
                        "cgroup's pids.max, memory for its stack)",
                        failed.what());
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

void Helper::ask_to_end() {
  stopping_.store(true, std::memory_order_release);
  bell_.wake();
}

bool Helper::await_end() {
  constexpr Duration kPatience = 3 * kSecond, kMost = 60 * kSecond;
  const Time begin = clock_.now();
  std::uint32_t before = work_.progress();
  Time deadline = begin + kPatience;
  while (runs_.load(std::memory_order_acquire) != 0) {
    futex_wait(runs_, 1, on_monotonic(clock_, deadline));
    const Time now = clock_.now();
    if (now < deadline) continue;
    const std::uint32_t done = work_.progress();
    if (done == before || now - begin > kMost) return false;
    before = done;
    deadline = now + kPatience;
  }
  return true;
}

void Helper::main() {
  settle_thread();
  cpus_allowed_ = cpus_run_on_ = node::cpus_of(0);
  while (files_open_.load(std::memory_order_acquire) == 0) futex_wait(files_open_, 0, kNever);
  drain_.start(counters_.dropped_before());
  began_ = clock_.now();
  while (!stopping_.load(std::memory_order_acquire)) {
    log_.add_domains(domains_);
    note_acts();
    drain_.drain();
    if (domains_.closing() >= 0) leases_.leave_arena(domains_.closing());
    work_.serve_closing();
    leases_.settle_arena();
    work_.act([this] {
      account(clock_.now());
      attend_node(clock_.now());
    });
    leases_.settle_arena();
    const Time now = clock_.now();
    pinned_.sample_growth(now, domains_.registered_bytes());
    if (now - last_check_ >= kCheckEvery) check(now);
    if (now - last_update_ >= LookSchedule::between_updates(now - began_)) update(now);
    sleep_until(desk_.next_look(clock_.now()));
  }
  end_of_run();
  runs_.store(0, std::memory_order_release);
  futex_wake(runs_, INT_MAX);
}

void Helper::check(Time now) {
  watch_.check_hooks();
  watch_.report_exposure();
  // A release can leave a region idle although its count was not the last: a refused hit still counts in.
  if (traits_of(options_.retention).decides_on_threads) desk_.sweep();
  last_check_ = now;
}

void Helper::update(Time now) {
  pinned_.sample(clock_.now(), domains_.registered_bytes());
  desk_.set_core_idle(load_.core_idle(now, desk_.helper_share().core_idle()));
  tell();
  const runlog::Counters all = counters_.all();
  const double books = all.bookkeeping_samples
                           ? static_cast<double>(all.bookkeeping_ns) * static_cast<double>(all.acquires) /
                                 static_cast<double>(all.bookkeeping_samples)
                           : 0;
  const std::uint64_t charged = leases_.spends_modelled_time() ? 0 : all.bounce_ns;
  desk_.time_budget().kept_books(std::llround(books + static_cast<double>(charged)));
  log_.publish(all, now);
  last_update_ = now;
}

void Helper::account(Time now) {
  double slept = 0;
  domains_.for_each([&](const DomainSlot& slot) {
    if (slot.device) slept += slot.device->modelled_sleep_seconds();
  });
  desk_.used(thread_cpu_now() + std::llround(slept * kSecond), now);
}

// ---- the node ----

void Helper::attend_node(Time now) {
  if (!node_.due(now, drain_.transfers())) return;
  NodeMembership::Need need{drain_.needed_bytes(), domains_.budget().bytes(), 0};
  for (const ThreadContext* thread = all_threads(); thread; thread = thread->next)
    need.threads += thread->state.load(std::memory_order_relaxed) == ThreadContext::State::live;
  const node::Place::Duty duty = node_.attend(now, drain_.transfers(), need, cpus_allowed_);

  const bool binds = duty.sharing.binds || need.leave_pinned > domains_.budget().limits().bytes;
  desk_.share(domains_.budget(), duty.sharing.hold_at_most, duty.sharing.at_hand, binds);
  desk_.set_helper(duty.helper, duty.turn);
  const node::CpuSet& cpus = duty.run_on.any() ? duty.run_on : cpus_allowed_;
  if (cpus != cpus_run_on_) node::run_on(cpus_run_on_ = cpus);
}

// ---- sleeping ----

void Helper::sleep_until(Time wake) {
  const Time before = clock_.now();
  const auto sleep = desk_.deep(before)          ? HelperBell::deep
                     : desk_.alert(before, wake) ? HelperBell::alert
                                                 : HelperBell::light;
  bell_.prepare(sleep);
  // Records pushed before prepare() woke no thread, and deep sleep would pass them over: look again.
  bool work = stopping_.load(std::memory_order_acquire) || domains_.closing() >= 0 || watch_.much_doomed();
  for (ThreadContext* thread = all_threads(); thread && !work; thread = thread->next)
    work = thread->ring.size() > 0;
  if (!work) {
    bell_.sleep(sleep, on_monotonic(clock_, wake));
    ++wakeups_;
    const Time now = clock_.now();
    if (wake != kNever && now >= wake) {
      memory_.lateness.add(now - wake);
      desk_.woke_late(now - wake);
    }
  }
  bell_.awake();
}

// ---- figures ----

void Helper::note_acts() {
  if (acts_ != Acts::measured) return;
  const DomainSlot* registers = nullptr;
  domains_.for_each([&](const DomainSlot& slot) {
    if (registers == nullptr && slot.device && slot.device->capabilities().registers) registers = &slot;
  });
  if (leases_.acts_below())
    acts_ = Acts::verbs;
  else if (registers != nullptr)
    acts_ = Acts::pinned;
  else
    return;
  log_.set_acts(acts_, to_string(options_.retention),
                acts_ == Acts::verbs ? kBelowLibraries : registers->device->description());
}

void Helper::tell() {
  account(clock_.now());
  runlog::Counters mine{};
  mine.helper_cpu_ns = static_cast<std::uint64_t>(thread_cpu_now());
  mine.helper_wakeups = wakeups_;
  mine.lateness = memory_.lateness;
  desk_.add_to(mine, clock_.now());
  mine.events_dropped = log_.events_dropped();
  mine.kernel_pinned_peak_bytes = pinned_.peak();
  mine.leave_pinned_bytes = drain_.leave_pinned_bytes();
  mine.leave_pinned_registration_ns = drain_.leave_pinned_registration_ns();
  mine.strict_keys_ns = modelled_strict_ns();
  tell_domains();
  counters_.tell(mine);
}

/// The time of registering anew for each shared key that the program asked for, and of deregistering.
std::uint64_t Helper::modelled_strict_ns() {
  double sum = 0;
  domains_.for_each([&](DomainSlot& slot) {
    const DomainMeter::Figures figures = slot.meter.read(clock_.now());
    const CostEstimates& costs = slot.kept.costs;
    const auto calls = static_cast<double>(figures.for_peers);
    const double entries = static_cast<double>(figures.pages_for_peers) * costs.entries_a_page.value();
    sum += calls * (costs.registration.b() + costs.deregistration.b()) +
           entries * (costs.registration.a() + costs.deregistration.a());
  });
  return static_cast<std::uint64_t>(std::max(0., sum));
}

void Helper::tell_domains() {
  domains_.for_each([&](DomainSlot& slot) {
    // Victims know pages.
    const CostEstimates& costs = slot.kept.costs;
    if (const double per_page = costs.registration.a() * costs.entries_a_page.value(); per_page > 0)
      slot.domain->set_call_pages(costs.registration.b() / per_page);
    if (log_.is_open()) log_.set_domain(slot, counters_.of(slot.number));
  });
}

void Helper::end_of_run() {
  log_.add_domains(domains_);
  note_acts();
  drain_.drain();
  // Should the process end before the rest is done, its log ends with this state.
  tell();
  log_.publish(counters_.all(), clock_.now());
  if (profile_.wanted()) {
    std::vector<std::string> profiles;
    domains_.for_each([&](const DomainSlot& slot) { profiles.push_back(slot.kept.retention->profile()); });
    profile_.keep(profiles);
  }
  pinned_.sample(clock_.now(), domains_.registered_bytes());
  // Leases still out (requests that the program never completed) stay: their transfers may go on.
  domains_.for_each([this](const DomainSlot& slot) { leases_.leave_arena(slot.number); });
  work_.retire_all_idle();
  leases_.settle_arena();
  if (log_.is_open()) write_arena_figures(options_.log.c_str(), leases_.arena().figures());
  // A process that still holds leases keeps its share, until the process ends.
  if (domains_.budget().bytes() == 0) node_.leave(domains_.budget());
  tell();
  const runlog::Counters all = counters_.all();
  log_.finish(all, clock_.now(), pinned_.finish());
}

void Helper::forget() {
  domains_.for_each([this](DomainSlot& slot) {
    if (traits_of(options_.retention).decides_on_threads)
      leases_.outlive(std::move(slot.kept.retention));
    else
      slot.kept.retention.reset();
  });
}

}  // namespace pinion
