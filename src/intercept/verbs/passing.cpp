#include "intercept/verbs/passing.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "base/units.h"
#include "base/warning.h"
#include "device/kernel/memlock.h"
#include "intercept/verbs/callers.h"
#include "intercept/verbs/run.h"
#include "prepare/fault_in_by_threads.h"

namespace pinion::verbs {

namespace {

using runlog::PassedFor;

/// A registration whose system limit is worth a look.
constexpr std::size_t kManyBytes = std::size_t{64} << 20;

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

std::uint64_t pages_of(const void* address, std::size_t bytes) {
  return is_addressable(reinterpret_cast<Address>(address), bytes)
             ? Range::of(address, bytes).to_pages().bytes()
             : 0;
}

void count_strict(ThreadContext* thread, const OwnRegistration& own, Ticks begin) {
  if (own.why == PassedFor::keys && thread != nullptr) thread->passed.strict_ticks.add(ticks_now() - begin);
}

}  // namespace

bool is_plain(const Asked& asked) {
  const auto begin = reinterpret_cast<Address>(asked.address);
  if ((asked.access & ~kPlain) != 0 || asked.iova != begin || !is_addressable(begin, asked.bytes))
    return false;
  // The library refuses these, with its own error.
  return (asked.access & kRemoteWrites) == 0 || (asked.access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

void fault_in_before(const Asked& asked) {
  if (!is_plain(asked) || (asked.access & IBV_ACCESS_LOCAL_WRITE) == 0) return;
  const Range range = Range::of(asked.address, asked.bytes);
  if (range.bytes() >= kManyBytes && memlock().has_room_for(range.bytes())) fault_in_by_threads(range, true);
}

Passing::Passing(const Asked& asked, PassedFor why, const EntryFrame& entry)
    : return_address_(entry.return_address) {
  LeasePath* const leases = leases_that_run();
  if (leases == nullptr || asked.pd == nullptr || !leases->registers()) return;
  thread_ = this_thread();
  if (thread_ == nullptr) return;
  counted_ = {asked.pd->context, pages_of(asked.address, asked.bytes), why};
  bytes_.begin(*thread_, *leases, counted_.bytes);
  fault_in_before(asked);
  begin_ = ticks_now();
}

void Passing::refused(int error) {
  if (thread_ == nullptr) return;
  bytes_.end();
  if (error == ENOMEM) report_memlock(counted_.bytes, return_address_);
}

std::uint64_t Passing::made() {
  // The call may have forked: this is the child.
  if (thread_ == nullptr || is_in_child()) return 0;
  const auto why = static_cast<unsigned>(counted_.why);
  thread_->passed.counts[why].add(1);
  thread_->passed.bytes[why].add(counted_.bytes);
  return bytes_.keep();
}

void Passing::made(const ibv_mr* mr) {
  if (thread_ == nullptr || is_in_child()) return;
  const std::uint64_t bytes = made();
  count_strict(thread_, counted_, begin_);
  // One that ended in a way that was not met had the same address.
  if (const auto stale = OwnRegistrations::instance().take(mr)) end_own(stale->bytes);
  if (!OwnRegistrations::instance().add(mr, counted_)) end_own(bytes);
}

void own_reregistered(const ibv_mr* mr, int changes, const Asked& changed) {
  if ((changes & IBV_REREG_MR_CHANGE_TRANSLATION) == 0 || is_in_child()) return;
  const std::uint64_t bytes = pages_of(changed.address, changed.bytes);
  const auto before = OwnRegistrations::instance().resize(mr, bytes);
  if (!before) return;
  LeasePath* const leases = leases_that_run();
  ThreadContext* const thread = this_thread();
  if (leases != nullptr && thread != nullptr) leases->begin_own(*thread, bytes);
  end_own(*before);
}

std::optional<int> deregister_own(Address return_address, ibv_mr* mr) {
  if (is_in_child()) return std::nullopt;
  OwnLeaving leaving(mr);
  if (!leaving.is_known()) return std::nullopt;
  ThreadContext* const thread = this_thread();
  const Ticks begin = ticks_now();
  if (const int error = caller_at(return_address, mr->context).next.dereg_mr(mr)) return error;
  const OwnRegistration own = leaving.gone();
  count_strict(thread, own, begin);
  end_own(own.bytes);
  return 0;
}

}  // namespace pinion::verbs
