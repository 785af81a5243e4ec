#include "intercept/cuda/registrations.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/process.h"
#include "base/process_mutex.h"
#include "base/warning.h"
#include "device/cuda/cuda.h"
#include "device/cuda/host_ranges.h"
#include "intercept/cuda/copy_check.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/stack_room.h"
#include "intercept/same_build.h"
#include "monitor/own_process.h"
#include "monitor/own_threads.h"
#include "monitor/sandbox.h"
#include "process/engine.h"

namespace pinion::cuda {

namespace {

constinit ProcessMutex g_starting;
constinit std::atomic<Registrations*> g_running{nullptr};
constinit std::atomic<bool> g_off{false};
/// The process may call what this build does not know, in this run and in later ones.
constinit std::atomic<bool> g_only_stages{false};
constinit std::atomic<CudaDevice*> g_device{nullptr};
/// Makes the context, which takes 150 ms. Joined as the process ends.
constinit std::atomic<std::thread*> g_making{nullptr};

/// A forked child lacks the thread, and would wait for it for ever as it exits.
void forget_parent() {
  g_off.store(true);
  g_making.store(nullptr);
}

/// Under a debugger or a checker of GPU programs everything is as without us: these follow the program's own
/// registrations and contexts.
bool is_debugged() {
  const char* const injected = std::getenv("CUDA_INJECTION64_PATH");
  if (injected != nullptr && std::strstr(injected, "anitizer") != nullptr) return true;
  KernelText status("/proc/self/status");
  for (std::string line; status.line(line);)
    if (line.rfind("TracerPid:", 0) == 0) return std::atoi(line.c_str() + std::strlen("TracerPid:")) != 0;
  return false;
}

}  // namespace

void Use::end() {
  LeasePath* const leases = std::exchange(leases_, nullptr);
  if (leases == nullptr) return;
  if (leases == LeasePath::running())
    leases->release(*thread_, transfer_);
  else
    leases->release_after_run(transfer_);
}

Registrations* Registrations::started() {
  Registrations* const known = g_running.load(std::memory_order_acquire);
  if (known == nullptr || g_off.load(std::memory_order_acquire)) return nullptr;
  return &known->leases_ == LeasePath::running() ? known : nullptr;
}

Registrations* Registrations::running() {
  if (Registrations* const known = started()) [[likely]]
    return known->leases_.stopped() ? nullptr : known;
  return g_off.load(std::memory_order_acquire) ? nullptr : start();
}

void Registrations::prepare() {
  const ProcessLock lock(g_starting);
  if (g_off.load() || started() != nullptr) return;
  note_filters();
  prepare_own_threads();
}

Registrations* Registrations::start() {
  if (current_context(driver()) == nullptr) return nullptr;  // the call fails as it is
  if (has_new_filter()) {
    g_off.store(true, std::memory_order_release);
    return nullptr;
  }
  const ProcessLock lock(g_starting);
  if (g_off.load()) return nullptr;
  if (Registrations* const known = started()) return known;
  if (!has_room_on_stack()) return nullptr;  // another thread's copy starts it
  Registrations* made = nullptr;
  if (const Error error = begin(made)) warn("%s: GPU copies go as without Pinion", error.message);
  g_off.store(made == nullptr, std::memory_order_release);
  // An earlier one may be in use by other threads: it is left to them.
  g_running.store(made, std::memory_order_release);
  return made;
}

Error Registrations::begin(Registrations*& made) {
  if (!same_build_or_say_so()) return {};
  Options options;
  if (Error error = options_from_environment(options)) return error;
  if (is_debugged()) return {};
  if (options.off || (options.front != Front::automatic && options.front != Front::cuda)) return {};
  JobPlace place = job_place();
  if (!list_holds(options.only_ranks, place.rank).value_or(true)) return {};
  // A run after the one of MPI is none of the job's ranks.
  if (Engine::running() == nullptr && Engine::was_started()) place = {-1, -1, place.local_ranks};
  if (Error error = Engine::join(options, place, false)) return error;
  Engine& engine = *Engine::running();
  Ordinal gpu = 0;
  if (driver().context_device(&gpu) != kSuccess) return {};
  // Never freed: threads may be inside it as the process ends.
  auto* const context = new OwnContext(driver(), gpu);
  auto device = make_cuda_device(driver(), host_ranges(), *context);
  g_device.store(device.get(), std::memory_order_release);
  Error error;
  const int domain = engine.domains().add(std::move(device), error);
  if (domain < 0) return error;
  if (const int handler = pthread_atfork(nullptr, nullptr, forget_parent))
    return Error::make(handler, "no memory for a fork handler");
  // Handlers run in the reverse order, so this one comes before libcuda's own.
  std::atexit(end_at_exit);
  check_copies(options.verify);
  const bool stages_only = options.cuda == CudaCopies::stage || g_only_stages.load();
  if (stages_only) g_device.load()->stop_registering();  // retention would register ahead
  made = new Registrations(engine.lease_path(), domain, *context, !stages_only);
  return {};
}

/// Nothing is unregistered as the process ends: the driver does it faster, and may be gone already.
void Registrations::end_at_exit() {
  g_off.store(true, std::memory_order_release);
  if (std::thread* const making = g_making.exchange(nullptr)) making->join();
  if (CudaDevice* const device = g_device.load(std::memory_order_acquire)) device->end();
  Engine::stop_at_exit();
}

CallPoint Registrations::call_point(ThreadContext& thread, const LinearCopy& copy,
                                    const EntryFrame& entry) const {
  const bool in = copy.direction == Direction::to_device;
  return {ticks_now(), thread.sites->capture(entry), in ? CallKind::copy_to_gpu : CallKind::copy_from_gpu};
}

namespace {

/// Memory is registered with all rights, because a range can be registered only once.
constexpr Access kRights = Access::write;

}  // namespace

bool Registrations::try_lease(const LinearCopy& copy, const EntryFrame& entry, Use& use) {
  ThreadContext* const thread = this_thread();
  if (thread == nullptr || !leases_.try_lease(
                               *thread, domain_, [&] { return call_point(*thread, copy, entry); },
                               copy.range(), kRights, use.transfer_))
    return false;
  use.thread_ = thread;
  use.leases_ = &leases_;
  return true;
}

bool Registrations::lease(const LinearCopy& copy, const EntryFrame& entry, Use& use) {
  ThreadContext* const thread = this_thread();
  if (thread == nullptr || !leases_.lease(
                               *thread, domain_, [&] { return call_point(*thread, copy, entry); },
                               copy.range(), kRights, use.transfer_, Refusal::report))
    return false;
  use.thread_ = thread;
  use.leases_ = &leases_;
  return use.leased();
}

void Registrations::record(const LinearCopy& copy, const EntryFrame& entry, Use& use) {
  use.end();
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return;
  leases_.observe(*thread, domain_, call_point(*thread, copy, entry), copy.range(), kRights, use.transfer_);
  use.thread_ = thread;
  use.leases_ = &leases_;
}

bool Registrations::can_register() {
  if (context_.ready()) return true;
  if (!made_.load(std::memory_order_relaxed) && context_.look() && !made_.exchange(true)) {
    try {
      g_making =
          new std::thread(start_own_thread("pinion-context", [this] { static_cast<void>(context_.make()); }));
    } catch (const std::system_error&) {
      // Without a thread the helper's first registration makes it.
    }
  }
  return false;
}

bool Registrations::registers_at_once() const {
  return leases_.registers() && !traits_of(leases_.options().retention).acts;
}

bool Registrations::has_room(Range range) const {
  Domain& domain = leases_.domains().domain(domain_);
  return leases_.registers() && !domain.budget().memory_is_short() && domain.has_room(range);
}

void Registrations::let_go(Range range) {
  if (ThreadContext* const thread = this_thread()) leases_.let_go_in(*thread, domain_, range);
}

bool Registrations::make_room() {
  Registrations* const running = started();
  ThreadContext* const thread = running != nullptr ? this_thread() : nullptr;
  return thread != nullptr && running->leases_.make_room(*thread);
}

void Registrations::let_go_at_any_time(Range range) {
  if (Registrations* const running = started())
    running->let_go(range);
  else if (CudaDevice* const device = g_device.load(std::memory_order_acquire))
    device->let_go_after_end(range);
}

bool Registrations::is_broken() {
  CudaDevice* const device = g_device.load(std::memory_order_acquire);
  return device != nullptr && device->broken();
}

void Registrations::only_stage() { g_only_stages.store(true); }

void Registrations::stop_registering() {
  registers_.store(false, std::memory_order_relaxed);
  const Range everything{0, ~Address{0}};
  if (CudaDevice* const device = g_device.load(std::memory_order_acquire)) device->stop_registering();
  let_go(everything);
  // Copies of other threads end soon; what is stuck behind a stream keeps its registration.
  for (int i = 0; i < 1000 && host_ranges().touches_registration(everything); ++i) {
    ::usleep(1000);
    let_go(everything);
  }
}

}  // namespace pinion::cuda
