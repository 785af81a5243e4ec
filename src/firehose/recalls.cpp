#include "firehose/recalls.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include <algorithm>
#include <mutex>

#include "firehose/pins.h"
#include "monitor/memory_calls.h"
#include "monitor/own_process.h"
#include "monitor/system_call.h"
#include "process/peer_memory.h"
#include "transfer/endpoint/progressing.h"

namespace pinion::firehose {

namespace {

constexpr int kPatienceWithAgent = 8;

thread_local bool t_agent = false;
std::atomic<unsigned> g_forks{0};

unsigned watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] { ::pthread_atfork(nullptr, nullptr, [] { ++g_forks; }); });
  return g_forks.load();
}

/// Writes zeros over the page; false where that is impossible.
bool clear_page(Address page) {
  alignas(64) static const char zeros[4096] = {};
  for (Address at = page; at < page + page_size(); at += sizeof zeros)
    if (is_error(write_memory(at, zeros, sizeof zeros))) return false;
  return true;
}

void drop(Range pages) {
  if (!pages.empty()) raw_system_call(SYS_madvise, arguments_of(pages.begin, pages.bytes(), MADV_DONTNEED));
}

}  // namespace

void Recalls::become_agent() { t_agent = true; }
bool Recalls::is_agent() { return t_agent; }

Recalls::Recalls(const Pins& pins, Duration patience, Ring ring, void* context)
    : pins_(pins), patience_(patience), ring_(ring), context_(context), forks_(watch_forks()) {}

void Recalls::leave() {
  off_.store(true);
  while (inside_.load() > 0) ::sched_yield();
}

bool Recalls::is_off() const { return off_.load() || g_forks.load(std::memory_order_relaxed) != forks_; }

// ---- hooks

pinion::Answer Recalls::changing(const MemoryChange& change) {
  if (t_agent ? !pins_.is_pinned(change.range) : !pins_.may_be_pinned(change.range)) [[likely]]
    return pinion::Answer::proceed;
  inside_.fetch_add(1);
  const pinion::Answer given = is_off() ? pinion::Answer::proceed : answer(change);
  inside_.fetch_sub(1);
  return given;
}

pinion::Answer Recalls::answer(const MemoryChange& change) {
  if (change.is_advice() && is_private_anonymous(change.range)) return drop_in_place(change);
  const bool waits = change.alternative == pinion::Answer::refuse && change.kind != ChangeKind::heap &&
                     !t_agent && !transfer::Progressing::is();
  if (waits) return wait(note(change.range, true, kAsked));
  if (!t_agent || !is_asked(change.range)) note(change.range, false, kNoted);
  return change.alternative;
}

/// Whether a revocation is under way that includes some of the range.
bool Recalls::is_asked(Range range) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    const std::uint32_t state = slot.state.load();
    return state >= kNoted && state <= kGranted && slot.range().overlaps(range);
  });
}

/// The contents that the kernel would leave, on the same pages: peers may go on writing there.
pinion::Answer Recalls::drop_in_place(const MemoryChange& change) {
  if (change.kind == ChangeKind::lazily) return pinion::Answer::done;
  // The arena's registration needs its pages, those beside the firehoses' too.
  const bool writes_all = peer_memory::is_open_segment(change.range);
  Range unpinned{change.range.begin, change.range.begin};
  for (Address page = change.range.begin; page < change.range.end; page += page_size()) {
    const Address next = page + page_size();
    if ((writes_all || pins_.may_be_pinned({page, next})) && clear_page(page)) {
      drop(unpinned);
      unpinned.begin = next;
    }
    unpinned.end = next;
  }
  drop(unpinned);
  return pinion::Answer::done;
}

/// Returns null if all slots are used. The agent then revokes everything.
Recalls::Slot* Recalls::note(Range range, bool waits, State state) {
  for (Slot& slot : slots_) {
    std::uint32_t free = kFree;
    if (slot.state.load(std::memory_order_relaxed) != kFree ||
        !slot.state.compare_exchange_strong(free, kWritten))
      continue;
    used_.fetch_add(1);
    slot.begin.store(range.begin, std::memory_order_relaxed);
    slot.end.store(range.end, std::memory_order_relaxed);
    slot.waits.store(waits, std::memory_order_relaxed);
    slot.thread.store(::pthread_self(), std::memory_order_relaxed);
    slot.state.store(state);
    if (state == kAsked) ring_(context_);
    return &slot;
  }
  overflow_noted_.store(true);
  return nullptr;
}

pinion::Answer Recalls::wait(Slot* slot) {
  if (!slot) return pinion::Answer::refuse;
  // The peers' time begins with the agent's message. The agent may be starved itself, for a while.
  const Time end = monotonic_now() + kPatienceWithAgent * patience_;
  for (Duration rest = 20 * kMicrosecond;; rest = std::min(2 * rest, kMillisecond)) {
    const std::uint32_t state = slot->state.load();
    if (state == kGranted) break;
    const Time now = monotonic_now();
    if (now > end || is_off() || (state == kTaken && now > slot->deadline.load())) {
      slot->state.store(kOver);
      ring_(context_);
      return pinion::Answer::refuse;
    }
    const timespec time{0, rest};
    raw_system_call(SYS_nanosleep, arguments_of(&time, 0));
  }
  return pinion::Answer::proceed;
}

void Recalls::changed(Range range) {
  if (used_.load() == 0 && !overflow_noted_.load(std::memory_order_relaxed)) [[likely]]
    return;
  bool asks = overflow_noted_.load(std::memory_order_relaxed) && overflow_noted_.exchange(false);
  if (asks) overflow_.store(true);
  for (Slot& slot : slots_) {
    const std::uint32_t state = slot.state.load();
    if ((state != kNoted && state != kGranted) || !(slot.range() == range) ||
        slot.thread.load() != ::pthread_self())
      continue;
    slot.state.store(state == kNoted ? kAsked : kOver);
    asks = true;
    break;
  }
  if (!asks) return;
  inside_.fetch_add(1);
  if (!is_off()) ring_(context_);
  inside_.fetch_sub(1);
}

void Recalls::appeared(const NewMapping& mapping) {
  if (!pins_.may_be_pinned(mapping.range)) return;
  inside_.fetch_add(1);
  if (!is_off()) note(mapping.range, false, kAsked);
  inside_.fetch_sub(1);
}

// ---- the agent

bool Recalls::take(Asked& asked) {
  if (overflow_.exchange(false)) {
    asked = {kEverything, {0, kAddressEnd}, monotonic_now() + patience_};
    return true;
  }
  for (Slot& slot : slots_) {
    if (slot.state.load() != kAsked) continue;
    const Time deadline = monotonic_now() + patience_;
    slot.deadline.store(deadline);
    std::uint32_t state = kAsked;
    if (!slot.state.compare_exchange_strong(state, kTaken)) continue;
    asked = {static_cast<std::uint64_t>(&slot - slots_.data()), slot.range(), deadline};
    return true;
  }
  return false;
}

bool Recalls::grant(std::uint64_t name) {
  if (name == kEverything) return true;
  Slot& slot = slots_[name];
  if (!slot.waits.load()) return true;
  // It may have run out of patience at this moment.
  std::uint32_t taken = kTaken;
  slot.state.compare_exchange_strong(taken, kGranted);
  return false;
}

bool Recalls::take_over(std::uint64_t& name) {
  for (Slot& slot : slots_) {
    if (slot.state.load() != kOver) continue;
    name = static_cast<std::uint64_t>(&slot - slots_.data());
    return true;
  }
  return false;
}

void Recalls::end(std::uint64_t name) {
  if (name == kEverything) return;
  slots_[name].state.store(kFree);
  used_.fetch_sub(1);
}

}  // namespace pinion::firehose
