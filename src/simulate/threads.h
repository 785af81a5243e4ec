// The application threads of a simulated process: they follow their scripts, hold leases, wait for their
// registrations, and leave records for the helper. What they do is what the engine's lease path does
// (lease/lease.h). One thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "retention/record.h"
#include "retention/retention_options.h"
#include "simulate/calls.h"
#include "simulate/comparison.h"
#include "simulate/domains.h"
#include "simulate/events.h"
#include "simulate/helper.h"
#include "simulate/observer.h"
#include "simulate/operation.h"
#include "simulate/peers.h"
#include "simulate/process_settings.h"

namespace pinion::simulate {

struct HeldLease {
  Record record;
  Range range{};
  Range pages{};  ///< whole ones of its memory
  std::uint64_t number = 0;
  UnderLeavePinned leave_pinned;
  Time leased = 0;
  std::uint16_t thread = 0;
  bool settled = false;  ///< its region was: it leaves no record
  bool live = false;
};

/// The leases of all threads, by small numbers that are given again.
class HeldLeases {
 public:
  HeldLease& operator[](std::uint32_t number) { return leases_[number]; }
  std::uint32_t take() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(leases_.size()));
      leases_.emplace_back();
    }
    const std::uint32_t number = free_.back();
    free_.pop_back();
    leases_[number].live = true;
    return number;
  }
  void give_back(std::uint32_t number) {
    leases_[number].live = false;
    free_.push_back(number);
  }
  template <class F>
  void for_each(F&& f) const {
    for (const HeldLease& lease : leases_)
      if (lease.live && lease.record.region().region) f(lease.range, *lease.record.region().region);
  }

 private:
  std::vector<HeldLease> leases_;
  std::vector<std::uint32_t> free_;
};

class Threads final : public CallUser {
 public:
  /// All outlive it.
  Threads(const ProcessSettings& settings, Events& events, Domains& domains, Calls& calls,
          Comparison& comparison, SimulatedHelper& helper, Observer& observer, runlog::Counters& counters);

  /// Adds the next thread, which begins at once. `script` outlives the run.
  void add(Script& script);
  /// Lets the thread go on: its script has more, after it had no more.
  void resume(std::uint16_t number);
  std::size_t count() const { return threads_.size(); }
  /// Changes memory by that thread, as the hooks report it.
  void change_memory(Range range, std::uint16_t number);
  /// Returns when the thread that ran longest had done its last operation.
  Time ended() const { return ended_; }
  const HeldLeases& leases() const { return leases_; }
  /// Lets its threads wait for these peers, which outlive it.
  void meet_peers(Peers& peers) { peers_ = &peers; }
  bool wait_for_peers() const { return waits_for_peers_ != kNobody; }
  void peers_came(Time now);

  // ---- events ----

  /// The thread's next operation is due: it runs on up to the next other event and to `until`.
  void run(std::uint16_t number, Time until);
  /// The copy into the bounce buffer is made.
  void copied(std::uint16_t number);
  /// The lease ends by itself.
  void end_lease(std::uint32_t lease) { release(leases_[lease].thread, lease, false); }

 private:
  struct Thread {
    Script* script = nullptr;
    Operation operation{};  ///< the next one
    bool idle = true;
    bool met = true;  ///< its peers, for that operation
    Time free_at = 0;
    Time asked = 0;
    Duration delayed = 0;  ///< its waits for registration so far
    std::uint32_t lease = 0;
    std::vector<std::uint32_t> slots;  ///< leases
    RegionRef left_idle;               ///< by the release that lets go; none: a registration does
    std::unique_ptr<RecentRegions> recent = std::make_unique<RecentRegions>();
  };
  static std::uint16_t thread_of(std::uint32_t call) { return static_cast<std::uint16_t>(call - 1); }
  static std::uint32_t call_of(std::uint16_t number) { return number + 1u; }

  void made(std::uint32_t call, const DeviceCall& device_call) override;
  void acquired(std::uint32_t call, AcquireStep step) override;
  void retired(std::uint32_t call) override;

  static constexpr std::uint32_t kNobody = UINT32_MAX;
  /// Fetches the next operation and returns when it is due; kNever: there is none.
  Time fetch(Thread& thread);
  /// Meets the peers for the thread's operation, which is due. Returns when its transfer ends; kNever: the
  /// peers let the thread go on.
  Time meet(std::uint16_t number);
  /// Begins the messages of the thread's operation, which is done.
  void begin_messages(const Operation& operation);
  void schedule_next(std::uint16_t number);
  /// Returns false when the thread goes on later, by an event of its own; so do the next two.
  bool perform(std::uint16_t number);
  bool acquire(std::uint16_t number, const Operation& operation);
  bool release(std::uint16_t number, std::uint32_t lease, bool by_thread);
  HeldLease& take_lease(std::uint16_t number, const Operation& operation);
  void granted(std::uint16_t number);
  void delay(Thread& thread, Duration by);
  /// Notes the wait for the lease, and the part of it that leave-pinned would have waited.
  void note_wait(HeldLease& lease, Duration wait);
  /// Returns that part of the registration that the thread has just made: its lease may last. note_wait()
  /// corrects it.
  Duration foresee(HeldLease& lease, Duration took);
  /// Begins the deregistrations that retention wants on the thread, now that it has registered a region or
  /// has left one idle. False: there is nothing.
  bool let_go(std::uint16_t number, RegionRef left_idle);
  bool let_next_go(std::uint16_t number);

  const ProcessSettings& settings_;
  const RetentionTraits traits_;
  Events& events_;
  Domains& domains_;
  Calls& calls_;
  Comparison& comparison_;
  SimulatedHelper& helper_;
  Observer& observer_;
  runlog::Counters& counters_;
  std::deque<Thread> threads_;
  HeldLeases leases_;
  Peers* peers_ = nullptr;                   ///< null: they wait for nobody
  std::uint32_t waits_for_peers_ = kNobody;  ///< the thread that does: patterns have one
  bool others_go_on_ = false;                ///< now: so this process runs ahead no further
  Time ended_;
};

}  // namespace pinion::simulate
