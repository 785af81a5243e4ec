#include "helper/helper.h"

#include <unistd.h>

#include <algorithm>

#include "base/machine_memory.h"
#include "base/on_monotonic.h"
#include "base/warning.h"
#include "device/kernel/collapse.h"
#include "lease/lease.h"
#include "placement/arena_figures.h"
#include "predict/predictor.h"
#include "prepare/preparation.h"
#include "prepare/segment_preparation.h"
#include "retention/retention.h"

namespace pinion {

namespace {

constexpr Duration kCheckEvery = 200 * kMillisecond;
// Programs of machine learning bring gigabytes of code, all of which is read before a region may stay.
constexpr Duration kBetweenReads = 2 * kMillisecond;
// In a process that was stopped: until all is let go, and then, when regions go with their leases.
constexpr Duration kUntilLetGo = 20 * kMillisecond, kBetweenLooksAside = kSecond;

TimeBudget::Settings budget_of(const Options& options, const JobPlace& place) {
  const auto cores = std::max(1.0, static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN)));
  const double ranks = std::max(1, place.local_ranks);
  return {
      .share = options.time_budget, .delay = TimeBudget::delay_of(ranks, cores), .core_idle = ranks < cores};
}

bool may_make_hugepages(const Options& options, const DeviceCapabilities& device) {
  return options.hugepages == Hugepages::automatic && !device.on_demand && !device.byte_ranges;
}

}  // namespace

Helper::Helper(const Options& options, const JobPlace& place, RunMemory& memory, DomainTable& domains,
               LeasePath& lease_path, SegmentPreparation& segments, MemoryWatch& watch, RunCounters& counters,
               NodeMembership& node, HelperBell& bell, Clock& clock)
    : options_(options),
      memory_(memory),
      domains_(domains),
      lease_path_(lease_path),
      segments_(segments),
      watch_(watch),
      bell_(bell),
      clock_(clock),
      desk_({.traits = traits_of(options.retention),
             .time_budget = budget_of(options, place),
             .minimum_gain = {options.minimum_gain, machine_memory()},
             .scale = calibration(),
             .poll = options.poll,
             .start = clock.now()}),
      profile_(options.profile, place.rank),
      log_(memory.meter),
      drain_(domains, memory.events, desk_, log_, watch.births(), clock),
      work_(domains, watch, counters, lease_path.fork_gate(), desk_, drain_, log_, clock),
      figures_(options, memory, domains, lease_path, counters, desk_, drain_, log_, clock),
      duties_(node, domains, drain_, desk_),
      thread_(bell, clock) {}

void Helper::equip(DomainSlot& slot) {
  // A domain whose device registers nothing is only observed, even beside others that register.
  slot.kept.observed = !traits_of(options_.retention).registers || !slot.device->capabilities().registers;
  slot.kept.untimed_hits = lease_path_.trail_of_hits(slot.kept) == HitTrail::none;
  const DeviceCapabilities& device = slot.device->capabilities();
  slot.kept.gains_by_hugepages = !slot.kept.observed && may_make_hugepages(options_, device);
  slot.kept.gains_wholly = slot.kept.gains_by_hugepages && device.page_sizes != 0;
  const RetentionKind kind = slot.kept.observed ? RetentionKind::observe : options_.retention;
  RetentionSettings settings{.kind = kind,
                             .lru_bytes = options_.lru_size,
                             .collapse = {.unit = slot.kept.gains_by_hugepages ? collapse_unit() : 0,
                                          .whole_regions = slot.kept.gains_wholly}};
  std::unique_ptr<Predictor> predictor;
  if (traits_of(kind).predicts) {
    predictor = make_predictor(options_.predictor, static_cast<unsigned>(options_.window),
                               static_cast<unsigned>(options_.period_window));
    if (profile_.wanted()) {
      settings.site_name = [this](std::uint64_t site) { return profile_.site_name(site); };
      profile_.begin(*predictor);
    }
  }
  slot.kept.retention = make_retention(std::move(settings), *slot.domain, std::move(predictor),
                                       slot.kept.costs, desk_.time_budget());
  desk_.add(slot.kept);
}

// ---- the thread ----

Error Helper::start(const runlog::RunInfo* log) {
  if (log) {
    if (Error failed = log_.open(options_.log, *log, options_.log_size)) warn("no log: %s", failed.message);
  }
  figures_.start();
  return thread_.start([this] { run(); },
                       [this](pid_t thread) {
                         load_.open(thread);
                         duties_.open();
                       });
}

void Helper::run() {
  duties_.start();
  began_ = clock_.now();
  while (!thread_.stopping()) {
    log_.add_domains(domains_);
    figures_.note_acts();
    drain_.drain();
    if (domains_.closing() >= 0) lease_path_.close(domains_.closing());
    work_.serve_closing();
    lease_path_.look(clock_.now());
    work_.act([this] {
      figures_.account(clock_.now());
      duties_.attend(clock_.now());
    });
    lease_path_.look(clock_.now());
    drain_.take_runs();
    const Time now = clock_.now();
    figures_.sample_growth(now);
    const bool hurries = hurries_to_see(now);
    if (hurries || now - last_check_ >= kCheckEvery) check(now);
    if (lease_path_.stopped()) let_everything_go();
    if (now - last_update_ >= LookSchedule::between_updates(now - began_)) update(now);
    const Time of_segments = segments_.attend(clock_.now());
    const Time next_look = lease_path_.stopped() ? next_look_aside() : desk_.next_look(clock_.now());
    sleep_until(std::min({next_look, of_segments, hurries ? clock_.now() + kBetweenReads : kNever}));
  }
  end_of_run();
}

bool Helper::hurries_to_see(Time now) {
  if (!watch_.is_newly_blind(now) || lease_path_.stopped()) return false;
  bool registers = false;
  domains_.for_each([&](const DomainSlot& slot) {
    registers |= slot.device != nullptr && slot.device->capabilities().registers;
  });
  return registers;
}

void Helper::check(Time now) {
  // Leave-pinned needs the program's code read as well: 25 ms for a compiler's library of 170 MB.
  const Duration before = thread_cpu_now();
  watch_.check_hooks();
  desk_.time_budget().leave_pinned_did(thread_cpu_now() - before);
  watch_.report_exposure();
  work_.keep_to_mappings();
  // A release can leave a region idle although its count was not the last: a refused hit still counts in.
  if (traits_of(options_.retention).decides_on_threads) desk_.sweep();
  if (!lease_path_.stopped() && duties_.stop_request().asked()) stand_aside();
  last_check_ = now;
}

void Helper::stand_aside() {
  lease_path_.stop();
  desk_.stop_acting();
  log_.note_stop(clock_.now());
  warn("stopped by `pinion stop`: registrations end with their transfers, and copies to GPUs are plain");
}

void Helper::let_everything_go() {
  Preparation::let_all_go(lease_path_);
  domains_.for_each([this](const DomainSlot& slot) { lease_path_.close(slot.number); });
  work_.retire_all_idle();
  lease_path_.look(clock_.now());
  node::StopRequest& request = duties_.stop_request();
  if (!request.is_done()) request.answer(domains_.registered_bytes());
}

Time Helper::next_look_aside() {
  const bool done = duties_.stop_request().is_done() || domains_.registered_bytes() == 0;
  return clock_.now() + (done ? kBetweenLooksAside : kUntilLetGo);
}

void Helper::update(Time now) {
  desk_.set_core_idle(load_.core_idle(now, desk_.time_budget().core_idle()));
  figures_.update(now);
  last_update_ = now;
}

// ---- sleeping ----

void Helper::sleep_until(Time wake) {
  const Time before = clock_.now();
  const auto sleep = lease_path_.stopped()       ? HelperBell::light
                     : desk_.deep(before)        ? HelperBell::deep
                     : desk_.alert(before, wake) ? HelperBell::alert
                                                 : HelperBell::light;
  bell_.prepare(sleep);
  // Records pushed before prepare() woke no thread, and deep sleep would pass them over: look again.
  bool work = thread_.stopping() || domains_.closing() >= 0 || watch_.much_doomed() || segments_.is_rung();
  for (ThreadContext* thread = all_threads(); thread && !work; thread = thread->next)
    work = thread->ring.size() > 0;
  if (!work) {
    bell_.sleep(sleep, on_monotonic(clock_, wake));
    figures_.woke();
    const Time now = clock_.now();
    if (wake != kNever && now >= wake) {
      memory_.lateness.add(now - wake);
      desk_.woke_late(now - wake);
    }
  }
  bell_.awake();
}

void Helper::end_of_run() {
  segments_.end();
  log_.add_domains(domains_);
  figures_.note_acts();
  drain_.drain();
  watch_.births().end();
  drain_.end_runs(clock_.now());
  // Should the process end before the rest is done, its log ends with this state.
  figures_.publish();
  if (profile_.wanted()) {
    std::vector<std::string> profiles;
    domains_.for_each([&](const DomainSlot& slot) { profiles.push_back(slot.kept.retention->profile()); });
    profile_.keep(profiles);
  }
  figures_.sample();
  // Leases still out (requests that the program never completed) stay: their transfers may go on.
  domains_.for_each([this](const DomainSlot& slot) { lease_path_.close(slot.number); });
  work_.retire_all_idle();
  lease_path_.look(clock_.now());
  if (log_.is_open()) write_arena_figures(options_.log.c_str(), lease_path_.arena_figures());
  figures_.finish();
  duties_.end();
}

void Helper::forget() {
  domains_.for_each([this](DomainSlot& slot) {
    // Threads never enter that of an observed domain.
    if (traits_of(options_.retention).decides_on_threads && !slot.kept.observed)
      lease_path_.outlive(std::move(slot.kept.retention));
    else
      slot.kept.retention.reset();
  });
}

}  // namespace pinion
