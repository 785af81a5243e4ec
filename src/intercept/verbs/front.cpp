#include "intercept/verbs/front.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/process.h"
#include "base/process_mutex.h"
#include "base/units.h"
#include "base/warning.h"
#include "device/kernel/memlock.h"
#include "device/verbs/own_verbs_call.h"
#include "engine/acts.h"
#include "engine/engine.h"
#include "engine/fault_in_by_threads.h"
#include "engine/make_room.h"
#include "intercept/same_build.h"
#include "intercept/verbs/call_context.h"
#include "intercept/verbs/callers.h"
#include "intercept/verbs/handles.h"
#include "intercept/verbs/protection_domains.h"

namespace pinion::verbs {

namespace {

using runlog::PassedFor;

constexpr int kRemoteWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kRemote = kRemoteWrites | IBV_ACCESS_REMOTE_READ;
/// A registration whose system limit is worth a look.
constexpr std::size_t kManyBytes = std::size_t{64} << 20;
constexpr int kPlain = IBV_ACCESS_LOCAL_WRITE | kRemote | IBV_ACCESS_RELAXED_ORDERING;

// Registrations may be asked for before constructors of this library have run.
constinit Handles g_handles;
constinit ProtectionDomains g_domains;
constinit OwnRegistrations g_own;

// ---- the engine's life ----

constinit ProcessMutex g_starting;
constinit std::atomic<LeasePath*> g_leases{nullptr};
constinit std::atomic<bool> g_off{false};     ///< everything passes by
constinit std::atomic<bool> g_forked{false};  ///< the handles are the parent's

/// The leases of handles that the program has as it ends get their records: without them its memory would
/// count as registered, and as used by nobody. The leases stay: a device may still use the memory.
void write_open_leases() {
  LeasePath* const leases = LeasePath::running();
  ThreadContext* const thread = this_thread();
  if (leases == nullptr || thread == nullptr || g_forked.load(std::memory_order_acquire)) return;
  g_handles.for_each_held([&](const Backing& backing) {
    if (backing.transfer.active) leases->registry_source().note_open(*thread, backing.transfer);
  });
}

Error start(LeasePath*& leases) {
  if (!same_build_or_say_so()) return {};
  Options options;
  if (Error error = options_from_environment(options)) return error;
  if (options.off || !may_act_below(options)) return {};
  JobPlace place = job_place();
  if (!list_holds(options.only_ranks, place.rank).value_or(true)) return {};
  // A run after the one of MPI is none of the job's ranks.
  if (Engine::running() == nullptr && Engine::was_started()) place = {-1, -1, place.local_ranks};
  if (Error error = Engine::join(options, place, false)) return error;
  if (!Engine::running()->act_below()) return Engine::leave();
  leases = LeasePath::running();
  const int handler = pthread_atfork(nullptr, nullptr, [] {
    g_off.store(true);
    g_forked.store(true);
  });
  if (handler != 0) return Error::make(handler, "no memory for a fork handler");
  std::atexit([] {
    write_open_leases();
    Engine::stop_at_exit();
  });
  return {};
}

/// The lease path of the engine that runs for the front; null: there is none, or no more.
LeasePath* running_leases() {
  if (g_off.load(std::memory_order_acquire)) return nullptr;
  LeasePath* leases = g_leases.load(std::memory_order_acquire);
  if (leases == nullptr) [[unlikely]] {
    const ProcessLock lock(g_starting);
    leases = g_leases.load(std::memory_order_acquire);
    if (leases == nullptr && !g_off.load()) {
      if (const Error error = start(leases))
        warn("%s: memory is registered as without Pinion", error.message);
      g_leases.store(leases, std::memory_order_release);
      g_off.store(leases == nullptr, std::memory_order_release);
    }
  }
  return leases != nullptr && leases == LeasePath::running() ? leases : nullptr;
}

/// Returns the lease path only if it runs already.
LeasePath* leases_that_run() {
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  return leases != nullptr && leases == LeasePath::running() && !g_forked.load(std::memory_order_acquire)
             ? leases
             : nullptr;
}

// ---- requests that Pinion answers ----

bool is_plain(const Asked& asked) {
  const auto begin = reinterpret_cast<Address>(asked.address);
  if ((asked.access & ~kPlain) != 0 || asked.iova != begin || !is_addressable(begin, asked.bytes))
    return false;
  // The library refuses these, with its own error.
  return (asked.access & kRemoteWrites) == 0 || (asked.access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

/// Whether a key is allowed to outlive its deregistration. Rights make no difference: a posted receive or
/// send carries a local key, and a peer's message completes it.
bool may_be_kept(const LeasePath& leases, const Caller& caller) {
  if (!leases.registers()) return true;  // observed: each registration is the library's own
  const RemoteKeys keys = leases.options().remote_keys;
  if (keys != RemoteKeys::automatic) return keys == RemoteKeys::shared;
  return caller.caches_itself;
}

CallPoint call_point(ThreadContext& thread, const EntryFrame& entry) {
  const Ticks now = ticks_now();
  if (t_mpi_call.site != 0) return {now, t_mpi_call.site, t_mpi_call.kind, t_mpi_call.peer};
  return {now, thread.sites->capture(entry), CallKind::reg_mr};
}

/// The program gets each registration: beyond the limit without Pinion.
void report_refusal(const LeasePath& leases, const Error& why, std::size_t bytes) {
  // A refusal by the device, or by the limit of locked memory, reaches the program itself next.
  static std::atomic<bool> said{false};
  if (why.code != ENOMEM || said.load(std::memory_order_relaxed) || !memlock().has_room_for(bytes)) return;
  if (said.exchange(true)) return;
  const Budget& budget = leases.budget();
  const Limits& limits = budget.limits();
  const std::uint64_t regions = budget.most_regions();
  const bool by_count = budget.regions() >= regions;
  const std::string most = by_count ? std::to_string(regions) + " regions" : format_size(limits.bytes);
  warn(
      "%s (%s) hold no further registration of the program's: what exceeds them is "
      "registered as without Pinion (said once)",
      most.c_str(), by_count ? budget.regions_from() : limits.bytes_from.c_str());
}

/// All that is registered is in use: no retention helps, but a limit or smaller pools.
void report_memlock(std::uint64_t bytes, Address caller) {
  static std::atomic<bool> said{false};
  const Memlock state = memlock();
  if (state.has_room_for(bytes) || said.exchange(true)) return;
  constexpr const char* kUcxQueue = "UCX_IB_RX_QUEUE_LEN";
  const bool ucx = is_ucx(caller) && std::getenv(kUcxQueue) == nullptr;
  warn(
      "RLIMIT_MEMLOCK (%s) has no room for %s more: %s are registered, and none of it is idle. Raise it to "
      "`ulimit -l %zu` at least%s%s%s (said once)",
      format_size(state.limit).c_str(), format_size(bytes).c_str(), format_size(state.pinned).c_str(),
      (state.pinned + bytes + 1023) / 1024, ucx ? ", or set " : "", ucx ? kUcxQueue : "",
      ucx ? "=1024, which makes UCX's own receive buffers smaller" : "");
}

/// The registration faults in what is absent, by one thread.
void fault_in_before(const Asked& asked) {
  if (!is_plain(asked) || (asked.access & IBV_ACCESS_LOCAL_WRITE) == 0) return;
  const Range range = Range::of(asked.address, asked.bytes);
  if (range.bytes() >= kManyBytes && memlock().has_room_for(range.bytes())) fault_in_by_threads(range, true);
}

/// Peers reach a whole segment by its key: the user has to allow that.
bool leases_in_arena(LeasePath& leases, ThreadContext& thread, int domain, Range range, Access access,
                     Backing& backing) {
  if (backing.has_peers && !includes(leases.arena().rights(), Access::all)) return false;
  return leases.arena_source().lease(thread, domain, range, access, backing.transfer);
}

/// Finds something to stand behind a handle. PassedFor: nothing has happened.
std::optional<PassedFor> back(const Caller& caller, const Asked& asked, const EntryFrame& entry,
                              Backing& backing) {
  if (OwnVerbsCall::now() || !is_plain(asked)) return PassedFor::kind;
  LeasePath* const leases = running_leases();
  if (leases == nullptr) return PassedFor::room;
  if (!may_be_kept(*leases, caller)) return PassedFor::keys;
  ThreadContext* const thread = this_thread();
  const int domain = thread ? g_domains.domain(leases->domains(), asked.pd,
                                               asked.access & ~IBV_ACCESS_LOCAL_WRITE, caller.library)
                            : -1;
  if (domain < 0) return PassedFor::device;
  const Access local = (asked.access & IBV_ACCESS_LOCAL_WRITE) != 0 ? Access::write : Access::read;
  const Range range = Range::of(asked.address, asked.bytes);
  backing.has_peers = (asked.access & kRemote) != 0 && leases->registers();
  // The meter counts from before the key exists until it may be gone; later reach of peers counts as exposed.
  DomainMeter& meter = leases->domains().slot(domain).meter;
  if (backing.has_peers) meter.program_registers(range.to_pages(), RealClock().now());
  Error why;
  // give_back() ends the reach of peers by these.
  backing.range = range;
  backing.domain = domain;
  if (leases_in_arena(*leases, *thread, domain, range, local, backing)) {
    backing.access = asked.access;
    return std::nullopt;
  }
  if (leases->registers()) fault_in_before(asked);
  if (!leases->registry_source().acquire(
          *thread, domain, [&] { return call_point(*thread, entry); }, range, local, backing.transfer,
          Refusal::report, &why)) {
    if (std::exchange(backing.has_peers, false))
      meter.program_was_refused(range.to_pages(), RealClock().now());
    report_refusal(*leases, why, asked.bytes);
    return PassedFor::room;
  }
  backing.access = asked.access;
  backing.real = nullptr;
  if (backing.transfer.region() != nullptr) return std::nullopt;
  // Retention observe: the program's own registration, whose time is recorded.
  const OwnVerbsCall own_call;
  backing.real = caller.next.reg_mr(asked.pd, asked.address, asked.bytes, asked.access);
  if (backing.real != nullptr) return std::nullopt;
  leases->release(*thread, backing.transfer);
  return PassedFor::room;
}

std::uint64_t pages_of(const void* address, std::size_t bytes) {
  return is_addressable(reinterpret_cast<Address>(address), bytes)
             ? Range::of(address, bytes).to_pages().bytes()
             : 0;
}

void end_own(std::uint64_t bytes) {
  if (LeasePath* const leases = leases_that_run()) leases->own_registrations().end(bytes);
}

/// An error leaves everything as it was.
int give_back(Address return_address, Backing& backing) {
  if (backing.real != nullptr) {
    const OwnVerbsCall own_call;
    if (const int error = caller_at(return_address, backing.real->context).next.dereg_mr(backing.real))
      return error;
    backing.real = nullptr;
  }
  if (backing.own_bytes != 0) end_own(std::exchange(backing.own_bytes, 0));
  if (!backing.transfer.active) return 0;
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  if (leases != LeasePath::running()) {
    leases->release_after_run(backing.transfer);
    return 0;
  }
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return ENOMEM;
  leases->release(*thread, backing.transfer);
  if (std::exchange(backing.has_peers, false))
    leases->domains()
        .slot(backing.domain)
        .meter.program_deregisters(backing.range.to_pages(), RealClock().now());
  return 0;
}

void fill(ibv_mr& mr, const Asked& asked, const Backing& backing) {
  mr.context = asked.pd->context;
  mr.pd = asked.pd;
  mr.addr = asked.address;
  mr.length = asked.bytes;
  if (backing.real != nullptr) {
    mr.handle = backing.real->handle;
    mr.lkey = backing.real->lkey;
    mr.rkey = backing.real->rkey;
  } else {
    // Does not change under the lease.
    const RegistrationKey& key = backing.transfer.region()->key;
    mr.handle = key.system_handle;
    mr.lkey = key.lkey;
    mr.rkey = static_cast<std::uint32_t>(key.remote_key);
  }
}

void count_strict(ThreadContext* thread, const OwnRegistration& own, Ticks begin) {
  if (own.why == PassedFor::keys && thread != nullptr) thread->passed.strict_ticks.add(ticks_now() - begin);
}

/// Nothing where the registration is not known.
std::optional<int> deregister_own(Address return_address, ibv_mr* mr) {
  if (g_forked.load(std::memory_order_acquire)) return std::nullopt;
  // This comes before the library frees it: another thread's may get its address.
  const auto own = g_own.take(mr);
  if (!own) return std::nullopt;
  const Ticks begin = ticks_now();
  const OwnVerbsCall own_call;
  if (const int error = caller_at(return_address, mr->context).next.dereg_mr(mr)) {
    if (!g_own.add(mr, *own)) end_own(own->bytes);
    return error;
  }
  count_strict(this_thread(), *own, begin);
  end_own(own->bytes);
  return 0;
}

}  // namespace

Passing::Passing(const Asked& asked, PassedFor why, const EntryFrame& entry)
    : return_address_(entry.return_address) {
  LeasePath* const leases = leases_that_run();
  if (leases == nullptr || asked.pd == nullptr || !leases->registers()) return;
  thread_ = this_thread();
  if (thread_ == nullptr) return;
  counted_ = {asked.pd->context, pages_of(asked.address, asked.bytes), why};
  leases->own_registrations().begin(*thread_, counted_.bytes);
  fault_in_before(asked);
  begin_ = ticks_now();
}

void Passing::refused(int error) {
  if (thread_ == nullptr) return;
  end_own(counted_.bytes);
  if (error == ENOMEM) report_memlock(counted_.bytes, return_address_);
}

std::uint64_t Passing::made() {
  if (thread_ == nullptr) return 0;
  const auto why = static_cast<unsigned>(counted_.why);
  thread_->passed.counts[why].add(1);
  thread_->passed.bytes[why].add(counted_.bytes);
  return counted_.bytes;
}

void Passing::made(const ibv_mr* mr) {
  if (thread_ == nullptr) return;
  made();
  count_strict(thread_, counted_, begin_);
  // One that ended in a way that was not met had the same address.
  if (const auto stale = g_own.take(mr)) end_own(stale->bytes);
  if (!g_own.add(mr, counted_)) end_own(counted_.bytes);
}

void own_reregistered(const ibv_mr* mr, int changes, const Asked& changed) {
  if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) == 0 || g_forked.load(std::memory_order_acquire)) return;
  const std::uint64_t bytes = pages_of(changed.address, changed.bytes);
  const auto before = g_own.resize(mr, bytes);
  if (!before) return;
  LeasePath* const leases = leases_that_run();
  ThreadContext* const thread = this_thread();
  if (leases != nullptr && thread != nullptr) leases->own_registrations().begin(*thread, bytes);
  end_own(*before);
}

Answer register_memory(const Caller& caller, const Asked& asked, const EntryFrame& entry) {
  try {
    Backing backing;
    if (const auto why = back(caller, asked, entry, backing)) return {nullptr, *why};
    Handle* const handle = g_handles.take();
    if (handle == nullptr) {
      give_back(entry.return_address, backing);
      return {};
    }
    handle->backing = backing;
    fill(handle->mr, asked, backing);
    handle->held.store(asked.pd->context, std::memory_order_release);
    return {&handle->mr};
  } catch (const std::bad_alloc&) {
    return {};
  }
}

std::optional<int> deregister_memory(Address return_address, ibv_mr* mr) {
  Handle* const handle = g_handles.find(mr);
  if (handle == nullptr) return deregister_own(return_address, mr);
  if (g_forked.load(std::memory_order_acquire)) return 0;
  ibv_context* const context = handle->held.exchange(nullptr, std::memory_order_acq_rel);
  if (context == nullptr) return EINVAL;
  if (const int error = give_back(return_address, handle->backing)) {
    handle->held.store(context, std::memory_order_release);
    return error;
  }
  g_handles.put(handle);
  return 0;
}

namespace {

/// False for arguments that libibverbs refuses before it calls the driver.
bool is_acceptable(int changes, const Asked& changed) {
  if ((changes & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return false;
  if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) != 0 && (changed.address == nullptr || changed.bytes == 0))
    return false;
  return changed.access == 0 || (changes & IBV_REREG_MR_CHANGE_ACCESS) != 0;
}

int failed(int code, int error) {
  errno = error;
  return code;
}

/// The region that a re-registration leaves: a cache has no use for its key, so it goes. From the beginning
/// it grants no further lease, among them the one that takes its place.
class Ending {
 public:
  explicit Ending(const Backing& backing) : domain_(backing.domain), pages_(backing.range.to_pages()) {
    const Transfer& transfer = backing.transfer;
    if (!transfer.active || transfer.in_arena() || transfer.region() == nullptr) return;
    leases_ = leases_that_run();
    if (leases_ != nullptr) transfer.region()->word.doom();
  }
  /// After the lease was returned.
  void end() const {
    ThreadContext* const thread = leases_ != nullptr ? this_thread() : nullptr;
    if (thread != nullptr) leases_->retirement().let_go_in(*thread, domain_, pages_);
  }

 private:
  LeasePath* leases_ = nullptr;  ///< null: no region has to go
  const int domain_;
  const Range pages_;
};

/// Puts something else behind a handle that the caller has taken away from the program.
int reregister(Handle& handle, int changes, const Asked& changed, const EntryFrame& entry) {
  ibv_mr& mr = handle.mr;
  Asked asked = changed;
  if ((changes & IBV_REREG_MR_CHANGE_PD) == 0) asked.pd = mr.pd;
  if ((changes & IBV_REREG_MR_CHANGE_ACCESS) == 0) asked.access = handle.backing.access;
  if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) == 0) {
    asked.address = mr.addr;
    asked.bytes = mr.length;
  }
  asked.iova = reinterpret_cast<Address>(asked.address);
  const Caller caller = caller_at(entry.return_address, asked.pd->context);
  Backing backing;
  const Ending ending(handle.backing);
  if (const auto why = back(caller, asked, entry, backing)) {
    // A handle of ours cannot be bound to a memory window, nor be anything else that the provider looks into.
    if ((asked.access & ~kPlain) != 0) return failed(IBV_REREG_MR_ERR_CMD, EOPNOTSUPP);
    Passing passing(asked, *why, entry);
    const OwnVerbsCall own_call;
    backing.real = caller.next.reg_mr(asked.pd, asked.address, asked.bytes, asked.access);
    if (backing.real == nullptr) {
      const int error = errno;
      passing.refused(error);
      return failed(IBV_REREG_MR_ERR_CMD, error);
    }
    backing.own_bytes = passing.made();
    backing.access = asked.access;
  }
  give_back(entry.return_address, handle.backing);
  ending.end();
  handle.backing = backing;
  fill(mr, asked, backing);
  return 0;
}

}  // namespace

std::optional<int> reregister_memory(ibv_mr* mr, int changes, const Asked& changed, const EntryFrame& entry) {
  Handle* const handle = g_handles.find(mr);
  if (handle == nullptr) return std::nullopt;
  if (g_forked.load(std::memory_order_acquire) || !is_acceptable(changes, changed))
    return failed(IBV_REREG_MR_ERR_INPUT, EINVAL);
  if (changes == 0) return failed(IBV_REREG_MR_ERR_CMD, EINVAL);  // the kernel's answer
  ibv_context* const context = handle->held.exchange(nullptr, std::memory_order_acq_rel);
  if (context == nullptr) return failed(IBV_REREG_MR_ERR_INPUT, EINVAL);
  const int result = reregister(*handle, changes, changed, entry);
  handle->held.store(result == 0 ? mr->context : context, std::memory_order_release);
  return result;
}

void protection_domain_ends(const ibv_pd* pd) {
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  if (leases != nullptr && leases == LeasePath::running()) g_domains.end(leases->domains(), pd);
}

void device_ends(ibv_context* context) {
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  if (leases == nullptr || leases != LeasePath::running()) return;
  // Handles that the program still holds end with their device.
  g_handles.take_away(context, [](Handle& handle) {
    handle.backing.real = nullptr;  // left to the kernel, as libibverbs leaves it
    give_back(0, handle.backing);
    g_handles.put(&handle);
  });
  g_own.take_all(context, [](const OwnRegistration& own) { end_own(own.bytes); });
  g_domains.end(leases->domains(), context);
}

bool make_room() {
  LeasePath* const leases = g_leases.load(std::memory_order_acquire);
  if (leases == nullptr || leases != LeasePath::running()) return false;
  ThreadContext* const thread = this_thread();
  return thread != nullptr && pinion::make_room(*leases, *thread);
}

}  // namespace pinion::verbs
