// The lease path: the two calls that every front makes for a transfer, acquire() and release(), and all that
// an application thread does in between hit and miss. Owns the parameters of the run that every transfer
// reads, in one cache line.
//
// acquire(), try_acquire(), release(), begin_hold(), end_hold(), own_registration_begins(),
// own_registration_ends() and let_idle_go() may be called by any thread while the run lasts, outside of
// hooks. release_after_run() may be called at any time. The object is never freed: threads may be inside it
// when the run ends.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "engine/arena_leases.h"
#include "engine/bell.h"
#include "engine/counters.h"
#include "engine/domain_table.h"
#include "engine/engine_options.h"
#include "engine/fork_gate.h"
#include "engine/memory_watch.h"
#include "engine/thread_context.h"
#include "registry/acquire.h"
#include "retention/record.h"
#include "retention/retention.h"
#include "retention/traits.h"

namespace pinion {

/// One call of the program, as a front sees it: made once, used for each of its buffers.
struct CallPoint {
  Ticks time = 0;
  CallSite site = 0;
  CallKind kind = CallKind::none;
  int peer = -1;
};

/// A transfer's use of a range, from acquire() to release(). Kept by the front (in its frame, or with the
/// request).
struct Transfer {
  Record record;
  bool active = false;
  std::uint16_t in_arena = 0;  ///< 1 + the place, of a request that the arena serves; it leaves no record
  Ticks bookkeeping = 0;       ///< of the acquire, when this one is sampled
  Region* segment = nullptr;   ///< of a request that the arena serves

  /// The registration that serves it; null: none.
  Region* region() const { return in_arena != 0 ? segment : record.region().region; }
};

/// The consequence for a transfer whose memory cannot be registered.
enum class Refusal {
  charge,  ///< it goes on without: the copy that a bounce buffer would take is charged as time
  report,  ///< acquire() returns false and holds nothing: the caller has a bounce buffer of its own
};

/// A region that stays registered for peers, by the registry's hold. It is no transfer: retention learns
/// nothing from it, and the log has events of its own.
struct PeerHold {
  RegionRef region;
  Range pages;
  int domain = 0;
};

class LeasePath {
 public:
  LeasePath(const Options& options, bool spends_modelled_time, DomainTable& domains, ArenaLeases& arena,
            MemoryWatch& watch, RunCounters& counters, HelperBell& bell);

  /// That of the running engine, or null. One load: what fronts ask first.
  static LeasePath* running() { return running_.load(std::memory_order_acquire); }

  /// Serves a request within the arena: what a front asks before it makes a CallPoint. False: acquire().
  bool lease_in_arena(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer) {
    if (!arena_.holds(request.begin)) [[likely]]
      return false;
    return try_in_arena(thread, domain, request, access, transfer) ||
           open_in_arena(thread, domain, request, access, transfer);
  }
  /// The same where the segment is registered already; else false, without effect.
  [[gnu::always_inline]] bool try_lease_in_arena(ThreadContext& thread, int domain, Range request,
                                                 Access access, Transfer& transfer) {
    return arena_.holds(request.begin) && try_in_arena(thread, domain, request, access, transfer);
  }
  /// Leases `request` for a transfer. False only with Refusal::report; then skip the release.
  /// Returns the reason of a refusal in `error`, when given.
  bool acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
               Transfer& transfer, Refusal refusal = Refusal::charge, Error* error = nullptr);
  /// The same where the memory is registered already; else false, without effect.
  bool try_acquire(ThreadContext& thread, int domain, const CallPoint& call, Range request, Access access,
                   Transfer& transfer);
  void release(ThreadContext& thread, Transfer& transfer) {
    const std::size_t place = transfer.in_arena;
    if (place == 0) return release_region(thread, transfer);
    transfer.active = false;
    transfer.in_arena = 0;
    if (give_back_in_arena(thread, place, transfer.segment)) [[unlikely]]
      close_segments(thread);
  }
  /// The part of it in the arena; `place` as in Transfer::in_arena. True: the segment is doomed, and
  /// close_segments() must follow.
  [[nodiscard, gnu::always_inline]] static bool give_back_in_arena(ThreadContext& thread, std::size_t place,
                                                                   const Region* segment) {
    thread.arena().at[place - 1].give_back();
    return segment->word.load().doomed();
  }
  void close_segments(ThreadContext& thread);
  /// The run of the process is about to end: the thread's runs of uses leave their records.
  void end_runs(ThreadContext& thread);
  /// For a lease that outlived the run, or came into a forked child (where this does nothing).
  void release_after_run(Transfer& transfer);

  /// Registers whole pages for peers, where needed, and holds them. EBUSY: the memory is changing.
  Error begin_hold(ThreadContext& thread, int domain, Range pages, Access access, PeerHold& hold);
  /// The region is deregistered at once, unless leases are out.
  void end_hold(ThreadContext& thread, const PeerHold& hold);

  /// A registration that the program makes without Pinion counts against the limits, from before it is made
  /// until it has ended: idle regions go for it, as far as there are any.
  void own_registration_begins(ThreadContext& thread, std::uint64_t bytes);
  void own_registration_ends(std::uint64_t bytes);

  /// Takes a lease back as if it had not been: lets the region go that was registered for it, where no other
  /// lease is out.
  void undo(ThreadContext& thread, Transfer& transfer);
  /// Whether a transfer is waiting for a registration at the moment.
  bool transfers_wait() const { return waiting_.load(std::memory_order_relaxed) != 0; }

  /// Lets idle regions go, in all domains: for memory, or a limit of the system's, that is needed elsewhere.
  void let_idle_go(ThreadContext& thread);
  /// Lets the idle doomed regions of a domain go.
  void reap_now(ThreadContext& thread, int domain);

  // ---- the arena; ordinary code ----

  /// Lets the registrations of closed segments go, as far as their requests are over.
  void settle_arena();
  /// All segments of the domain are closed: it is being emptied.
  void leave_arena(int domain);
  /// Lets segments go that nobody uses at the moment, until they hold so many bytes. False: there are none.
  bool let_arena_go(ThreadContext& thread, std::size_t bytes, Duration rest);
  ArenaLeases& arena() { return arena_; }

  const Options& options() const { return options_; }
  /// False for retention observe.
  bool registers() const { return traits_of(options_.retention).registers; }
  const Budget& budget() const { return domains_.budget(); }
  /// It is asked for room before a lease goes without.
  void add(Occupant& occupant) { domains_.budget().add(occupant); }
  void remove(Occupant& occupant) { domains_.budget().remove(occupant); }
  DomainTable& domains() const { return domains_; }
  /// Smallest transfer that needs registration, in bytes.
  std::uint64_t threshold() const { return threshold_; }
  /// Most bytes, of whole pages, that a domain's device registers in one region: fronts lease longer ranges
  /// in parts.
  std::size_t most_in_a_region(int number) const { return domain(number).most_in_a_region(); }
  /// Libraries register below; MPI calls now pass on without acquiring.
  bool acts_below() const { return acts_below_.load(std::memory_order_relaxed); }
  /// The process that the run began in.
  pid_t process() const { return process_; }
  ForkGate& fork_gate() { return fork_gate_; }
  /// The run is over; a thread may still be inside this retention, which is therefore never freed.
  void outlive(std::unique_ptr<Retention> retention) { past_.push_back(std::move(retention)); }
  /// Of modelled time, whether it delays threads (DeviceCapabilities of the first domain's device). Elsewhere
  /// it is charged in the books.
  bool spends_modelled_time() const { return spends_modelled_time_; }
  /// Bytes per ns; measured by the first caller.
  double copy_speed();

 private:
  friend class Engine;
  /// A slot that is about to be published.
  void know(const DomainSlot& slot);

  Domain& domain(int number) const { return *domain_of_[static_cast<std::size_t>(number)]; }
  bool acquire_slow(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer,
                    Refusal refusal, Error* error);
  /// Runs an acquisition: all of an acquire that locks, waits and calls the device. Refused: without region.
  AcquireResult acquire_by_steps(ThreadContext& thread, AcquireRequest request, Transfer& transfer);
  [[gnu::always_inline]] bool try_in_arena(ThreadContext& thread, int domain, Range request, Access access,
                                           Transfer& transfer) {
    const std::size_t place = arena_.place_of(domain, request.begin);
    Region* const segment = arena_.try_lease(thread, place, request, access);
    if (segment == nullptr) [[unlikely]]
      return false;
    transfer.active = true;
    static_assert(kArenaPlaces <= UINT16_MAX);
    transfer.in_arena = static_cast<std::uint16_t>(1 + place);
    transfer.segment = segment;
    return true;
  }
  /// Registers the segment first, where that may be.
  bool open_in_arena(ThreadContext& thread, int domain, Range request, Access access, Transfer& transfer);
  bool register_segment(ThreadContext& thread, int domain, Range request);
  void release_region(ThreadContext& thread, Transfer& transfer);
  /// Inline: it is a part of each hit.
  [[gnu::always_inline]] inline void begin_transfer(ThreadContext& thread, int domain, const CallPoint& call,
                                                    Range request, Access access, Transfer& transfer);
  void hit(ThreadContext& thread, Region* region, const CallPoint& call, Transfer& transfer);
  void charge_bounce(ThreadContext& thread, Transfer& transfer, const Error& why);
  /// Whether so much memory can be: more than the machine has is a mistake of the caller's.
  bool is_possible(Range request) const {
    return is_addressable(request.begin, request.bytes()) && request.bytes() <= memory_bytes_;
  }
  /// The range is invalid: it stays out of the records.
  bool refuse_impossible(ThreadContext& thread, Transfer& transfer, Refusal refusal, Error* error);
  /// A release has left the region idle: lets the regions go that retention claims for that, or this one for
  /// a fork.
  void settle(ThreadContext& thread, int domain, RegionRef idle);
  void retire_now(ThreadContext& thread, int domain, RegionRef ref);
  /// Counts and logs a deregistration of a region that goes for this thread's work.
  void note_retirement(ThreadContext& thread, int domain, const DeviceCall& call);
  /// Deregisters a region that was claimed.
  void retire_here(ThreadContext& thread, int domain, Region* region);
  /// Counts a device call, and leaves its record. `transfer`: the record of the transfer that needed it.
  void note(ThreadContext& thread, const Record& transfer, const DeviceCall& call);
  /// A lease has ended: it is counted in a run of uses, or leaves its record. `settled`: its region was when
  /// it began.
  void leave_in_run(ThreadContext& thread, const Record& lease, bool settled);
  void push(ThreadContext& thread, const Record& record) {
    bell_.pushed(thread.ring.push(record), decltype(thread.ring)::capacity(),
                 [&] { return is_unforeseen(record); });
  }

  static std::atomic<LeasePath*> running_;

  // One cache line that every transfer reads (of the first domains); written seldom.
  alignas(64) const std::uint64_t threshold_;
  std::atomic<bool> acts_below_;
  const bool settles_;  ///< the retention decides on application threads
  ForkGate fork_gate_;
  const bool spends_modelled_time_;
  HelperBell& bell_;
  ArenaLeases& arena_;
  std::array<bool, kMostDomains> observes_{};  ///< transfers of this domain are recorded only
  std::array<Domain*, kMostDomains> domain_of_{};
  std::array<Retention*, kMostDomains> retention_of_{};  ///< asked where `settles_`

  const Options& options_;
  DomainTable& domains_;
  MemoryWatch& watch_;
  RunCounters& counters_;
  const pid_t process_;
  const std::uint64_t memory_bytes_;  ///< of the machine
  const Ticks plausible_hit_;         ///< its bookkeeping takes no longer
  std::atomic<double> copy_bytes_per_ns_{0};
  std::atomic<bool> bounce_reported_{false}, segment_reported_{false};
  std::atomic<std::uint32_t> waiting_{0};  ///< transfers inside acquire_by_steps()
  std::vector<std::unique_ptr<Retention>> past_;
};

}  // namespace pinion
