#include "intercept/verbs/front.h"

#include <atomic>
#include <cerrno>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "base/warning.h"
#include "device/kernel/memlock.h"
#include "device/verbs/own_verbs_call.h"
#include "intercept/verbs/call_context.h"
#include "intercept/verbs/callers.h"
#include "intercept/verbs/handles.h"
#include "intercept/verbs/protection_domains.h"
#include "intercept/verbs/run.h"
#include "process/engine.h"

namespace pinion::verbs {

namespace {

using runlog::PassedFor;

// Registrations may be asked for before constructors of this library have run.
constinit ProtectionDomains g_domains;

// ---- requests that Pinion answers ----

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

/// Peers reach a whole segment by its key: the user has to allow that.
bool leases_in_arena(LeasePath& leases, ThreadContext& thread, int domain, Range range, Access access,
                     Backing& backing) {
  return (!backing.has_peers || leases.segments_serve_peers()) &&
         leases.lease_in_segment(thread, domain, range, access, backing.transfer);
}

/// Peers reach the range by its key, from before the key exists until it may be gone; later reach of theirs
/// counts as exposed.
class PeersReach {
 public:
  PeersReach(DomainMeter& meter, const Backing& backing) : meter_(meter), backing_(backing) {
    if (backing_.has_peers) meter_.program_registers(backing_.range.to_pages(), RealClock().now());
  }
  ~PeersReach() {
    if (!made_ && backing_.has_peers)
      meter_.program_was_refused(backing_.range.to_pages(), RealClock().now());
  }
  PeersReach(const PeersReach&) = delete;
  PeersReach& operator=(const PeersReach&) = delete;
  void made() { made_ = true; }

 private:
  DomainMeter& meter_;
  const Backing& backing_;
  bool made_ = false;
};

/// Retention observe: the program's own registration, whose time is recorded.
std::optional<PassedFor> observe(LeasePath& leases, ThreadContext& thread, const Caller& caller,
                                 const Asked& asked, const CallPoint& point, Access local, Backing& backing) {
  {
    const OwnVerbsCall own_call;
    backing.real = caller.next.reg_mr(asked.pd, asked.address, asked.bytes, asked.access);
  }
  if (backing.real == nullptr) return PassedFor::room;
  if (!is_in_child()) leases.observe(thread, backing.domain, point, backing.range, local, backing.transfer);
  return std::nullopt;
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
  // give_back() ends the reach of peers by these.
  backing.range = Range::of(asked.address, asked.bytes);
  backing.domain = domain;
  backing.access = asked.access;
  const auto point = [&] { return call_point(*thread, entry); };
  if (!leases->registers()) return observe(*leases, *thread, caller, asked, point(), local, backing);
  backing.has_peers = (asked.access & kRemote) != 0;
  PeersReach reach(leases->domains().slot(domain).meter, backing);
  if (!leases_in_arena(*leases, *thread, domain, backing.range, local, backing)) {
    fault_in_before(asked);
    Error why;
    if (!leases->lease_alone(*thread, domain, point, backing.range, local, backing.transfer, Refusal::report,
                             &why)) {
      report_refusal(*leases, why, asked.bytes);
      return PassedFor::room;
    }
  }
  reach.made();
  return std::nullopt;
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
  LeasePath* const leases = started_leases();
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

}  // namespace

Answer register_memory(const Caller& caller, const Asked& asked, const EntryFrame& entry) {
  mend_after_a_jump();
  try {
    Backing backing;
    if (const auto why = back(caller, asked, entry, backing)) return {nullptr, *why};
    // The library's call may have forked: the child has the registration as without Pinion.
    if (is_in_child()) return {backing.real};
    Handle* const handle = Handles::instance().take();
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
  mend_after_a_jump();
  Handle* const handle = Handles::instance().find(mr);
  if (handle == nullptr) return deregister_own(return_address, mr);
  if (is_in_child()) return 0;
  TakenHandle taken(*handle);
  if (!taken.is_ours()) return EINVAL;
  if (const int error = give_back(return_address, handle->backing)) return error;
  taken.keep();
  if (!is_in_child()) Handles::instance().put(handle);
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
    ThreadContext* const thread =
        leases_ != nullptr && leases_ == leases_that_run() ? this_thread() : nullptr;
    if (thread == nullptr) return;
    leases_->let_go_in(*thread, domain_, pages_);
    // The helper may have found it first.
    leases_->domains().domain(domain_).await_leaving(monotonic_now() + kRoomPatience);
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
  mend_after_a_jump();
  Handle* const handle = Handles::instance().find(mr);
  if (handle == nullptr) return std::nullopt;
  if (is_in_child() || !is_acceptable(changes, changed)) return failed(IBV_REREG_MR_ERR_INPUT, EINVAL);
  if (changes == 0) return failed(IBV_REREG_MR_ERR_CMD, EINVAL);  // the kernel's answer
  TakenHandle taken(*handle);
  if (!taken.is_ours()) return failed(IBV_REREG_MR_ERR_INPUT, EINVAL);
  const int result = reregister(*handle, changes, changed, entry);
  if (result == 0) taken.has_moved_to(mr->context);
  return result;
}

void protection_domain_ends(const ibv_pd* pd) {
  mend_after_a_jump();
  LeasePath* const leases = started_leases();
  if (leases != nullptr && leases == LeasePath::running()) g_domains.end(leases->domains(), pd);
}

void device_ends(ibv_context* context) {
  mend_after_a_jump();
  LeasePath* const leases = started_leases();
  if (leases == nullptr || leases != LeasePath::running()) return;
  // Handles that the program still holds end with their device.
  Handles::instance().take_away(context, [](Handle& handle) {
    handle.backing.real = nullptr;  // left to the kernel, as libibverbs leaves it
    give_back(0, handle.backing);
    Handles::instance().put(&handle);
  });
  OwnRegistrations::instance().take_all(context, [](const OwnRegistration& own) { end_own(own.bytes); });
  g_domains.end(leases->domains(), context);
}

bool make_room() {
  LeasePath* const leases = started_leases();
  if (leases == nullptr || leases != LeasePath::running()) return false;
  ThreadContext* const thread = this_thread();
  return thread != nullptr && leases->make_room(*thread);
}

}  // namespace pinion::verbs
