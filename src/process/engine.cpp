#include "process/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/held_signals.h"
#include "base/lock_calls.h"
#include "base/preemption.h"
#include "base/warning.h"
#include "callsite/python_place.h"
#include "device/kernel/mapped_pages.h"
#include "device/make.h"
#include "lease/acts.h"
#include "monitor/memory_events.h"
#include "monitor/sandbox.h"
#include "retention/retention_options.h"

namespace pinion {

namespace {

// A temporary log directory exists only on the node that created it. A log on another node would stay for
// ever.
bool has_log(const Options& options) {
  return !options.log.empty() && !(log_is_temporary() && ::access(options.log.c_str(), W_OK) != 0);
}

/// How RLIMIT_MEMLOCK counts for the run's devices.
Pinned counted_in(const Options& options) {
  const bool rdma = may_act_below(options) || options.device.rfind("verbs", 0) == 0;
  if (rdma) return Pinned::by_process;
  return options.device == kAutoDevice && gpu_driver_is_loaded() ? Pinned::uncounted : Pinned::by_user;
}

/// Registrations alone show whether advice was in vain.
bool may_advise(const Options& options) {
  return options.hugepages == Hugepages::automatic && traits_of(options.retention).registers;
}

std::string device_text(const Options& options, const Device* own) {
  switch (acts_at_start(options)) {
    case Acts::measured:
      return kMeasuredOnly;
    case Acts::verbs:
      return kBelowLibraries;
    case Acts::cuda:
    case Acts::pinned:
      break;
  }
  return own->description();
}

}  // namespace

std::atomic<Engine*> Engine::running_{nullptr};
std::atomic<Engine*> Engine::newest_{nullptr};

Engine::Engine(const Options& options, const JobPlace& place, bool spends_modelled_time)
    : options_(options),
      memory_(RunMemory::take()),
      node_(options_, ::getpid()),
      budget_(find_limits(options.limit, options.limit_regions, place.local_ranks, node_.limit(),
                          counted_in(options)),
              node_.allowance()),
      domains_(memory_, budget_, memory_events::brackets(), bell_,
               [this](DomainSlot& slot) {
                 helper_->equip(slot);
                 lease_path_.know(slot);
                 segments_.wanted();
               }),
      arena_(process_heap(), process_arena(), options.preregister_remote ? Access::all : Access::write),
      watch_(domains_, arena_, memory_.events, memory_events::brackets(), bell_,
             traits_of(options.retention).keeps_idle, acts_at_start(options) != Acts::measured),
      counters_(memory_, domains_, watch_, clock_),
      lease_path_(options_, spends_modelled_time, domains_, arena_, watch_, counters_, bell_),
      segments_(process_heap(), process_arena(), lease_path_, bell_, options.preregister_ahead),
      helper_(std::make_unique<Helper>(options_, place, memory_, domains_, lease_path_, segments_, watch_,
                                       counters_, node_, bell_, clock_)) {}

// ---- start and stop ----

namespace {

/// Makes the kinds of system calls that later work needs and the start does not: a program may close a
/// sandbox around the kinds that it has seen. e2e/sandboxes.sh finds those that are missing here.
void make_later_calls(const Options& options) {
  const PreemptionMeter meter;
  static_cast<void>(thread_cpu_now());
  static_cast<void>(executable_path());
  if (acts_at_start(options) != Acts::measured) mapped_pages().question_file();
  make_lock_calls();
  if (options.hugepages == Hugepages::automatic) note_filters();
}

}  // namespace

Error Engine::start(const Options& options, const JobPlace& place, const std::string& command) {
  if (running()) return Error::make(EBUSY, "an engine runs in this process already");
  const HeldSignals held;
  if (place.rank >= 0 && place.ranks > 1) name_process(place.rank);
  calibration();
  make_later_calls(options);
  find_python();
  // Below the libraries there is no domain before the program has a device.
  const bool own_device = acts_at_start(options) != Acts::verbs;
  DeviceResult made = own_device ? make_device(options.device, options.nic) : DeviceResult{};
  if (made.error) return made.error;

  // Never freed: a thread may be inside it when the run ends.
  auto* engine = new Engine(options, place, own_device && made.device->capabilities().spends_modelled_time);
  engine->earlier_ = newest_;
  newest_ = engine;
  const std::string device = device_text(options, made.device.get());
  Error error;
  if (own_device) engine->domains_.add(std::move(made.device), error, options.device, options.nic);
  if (error) {
    engine->node_.leave(engine->budget_);
    return error;
  }
  watch_forks();
  engine->counters_.start();
  engine->watch_.begin(options);
  engine->watch_.births().begin(may_advise(options) ? advice_unit() : 0, command);
  engine->segments_.begin();
  error = engine->publish();
  const Time now = engine->clock_.now();
  engine->memory_.meter.start(now);
  if (!error && has_log(options)) {
    const runlog::RunInfo info = engine->run_info(place, command, device, now);
    error = engine->helper_->start(&info);
  } else if (!error) {
    error = engine->helper_->start(nullptr);
  }
  if (error) {
    withdraw();
    engine->watch_.end();
    engine->node_.leave(engine->budget_);
  }
  return error;
}

bool Engine::act_below() {
  switch (acts_at_start(options_)) {
    case Acts::verbs:
      return true;
    case Acts::pinned:
      return false;
    case Acts::cuda:
    case Acts::measured:
      break;
  }
  if (options_.front != Front::automatic) return false;
  if (lease_path_.acts_below_.exchange(true)) return true;
  // Pretends that all memory has gone: nothing may hold it against leave-pinned any longer.
  memory_.events.mark({0, page_size()});
  memory_.events.post({0, ~Address{0}});
  return true;
}

runlog::RunInfo Engine::run_info(const JobPlace& place, const std::string& command, const std::string& device,
                                 Time now) {
  runlog::RunInfo info;
  info.job = job_key();
  info.run = run_key();
  info.command = command;
  info.options = format_options(options_);
  info.acts = acts_at_start(options_);
  info.retention = to_string(info.acts == Acts::measured ? RetentionKind::observe : options_.retention);
  info.predictor = options_.predictor;
  info.device = device;
  info.rank = place.rank;
  info.ranks = place.ranks;
  info.local_ranks = place.local_ranks;
  info.cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  info.limit_bytes = budget_.limits().bytes;
  info.memcpy_bytes_per_ns = lease_path_.copy_speed();
  info.start = now;
  return info;
}

Error Engine::publish() {
  if (Error full = memory_events::add(watch_)) return full;
  running_.store(this, std::memory_order_release);
  LeasePath::running_.store(&lease_path_, std::memory_order_release);
  return {};
}

Engine* Engine::withdraw() {
  LeasePath::running_.store(nullptr, std::memory_order_release);
  Engine* const engine = running_.exchange(nullptr, std::memory_order_acq_rel);
  if (engine) memory_events::remove(engine->watch_);
  return engine;
}

void Engine::end_run() { helper_->ask_to_end(); }

void Engine::stop() {
  const HeldSignals held;
  Engine* engine = running();
  if (!engine) return;
  engine->end_run();
  engine->helper_->join();
  withdraw();
  engine->helper_->forget();
  engine->helper_.reset();
  engine->watch_.end();
}

void Engine::stop_at_exit() {
  const HeldSignals held;
  Engine* engine = running();
  if (!engine) return;
  engine->end_run();
  // The helper finds Pinion's locks free (held_signals.h). But a handler that exits may have interrupted
  // malloc or the loader, whose locks the helper may need as well.
  if (!engine->helper_->await_end()) {
    static constexpr char kText[] =
        "pinion: the process ends within malloc or the loader: its log lacks the last moments\n";
    static_cast<void>(!::write(STDERR_FILENO, kText, sizeof kText - 1));
  }
  withdraw();
  // The hooks stay: taking them away takes locks, and the process is gone in a moment.
}

}  // namespace pinion
