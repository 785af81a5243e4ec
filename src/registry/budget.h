// The process-wide budget of registered memory, shared by all domains: bytes and number of regions. The bytes
// usable at the moment can be fewer than the limit: the process's share of a limit of the node, which an
// Allowance obtains from the node's other processes (node/node_share.h), or the total that the system has
// turned out to allow (learned_room.h). Registrations that the program makes without Pinion count too:
// they alone can exceed the limits. Any thread, outside of hooks; one short mutex, and hits stay outside.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/mutex.h"
#include "registry/learned_room.h"
#include "registry/peak_goal.h"
#include "registry/transitions.h"

namespace pinion {

/// Limits in force and where each came from, for errors and reports.
struct Limits {
  std::uint64_t bytes = UINT64_MAX;
  std::uint64_t regions = UINT64_MAX;
  std::string bytes_from = "no limit";
  /// The most that may stay registered while idle: beyond it is the part of RLIMIT_MEMLOCK that stays free
  /// for what the program pins by itself.
  std::uint64_t idle_bytes = UINT64_MAX;
};

/// The memory that RLIMIT_MEMLOCK bounds: io_uring counts the memory of all processes of the user, RDMA
/// devices that of each process. NVIDIA's driver counts none.
enum class Pinned { by_user, by_process, uncounted };

/// Returns the limits of the process, for all its domains together: the least of the user's limit (0: none),
/// RLIMIT_MEMLOCK (for a user without CAP_IPC_LOCK; the user's `local_processes` ranks of the node share it),
/// half of the cgroup's limit and of the node's memory (shared as well), and all of a limit of the node. A
/// device's caps bound its own domain only (Admission).
Limits find_limits(std::uint64_t user_bytes, std::uint64_t user_regions, int local_processes,
                   std::uint64_t node_bytes = 0, Pinned pinned = Pinned::by_user);

/// The process's share of a limit on several processes. Called under the budget's mutex.
class Allowance {
 public:
  virtual ~Allowance() = default;
  /// The bytes that the process may hold.
  virtual std::uint64_t bytes() const = 0;
  /// Tries to raise the share to `bytes`; bytes() then returns the result.
  virtual void raise(std::uint64_t bytes) = 0;
  /// Returns the excess over `bytes`, as far as possible.
  virtual void lower(std::uint64_t bytes) = 0;
  /// Keeps the share as it is from now on.
  virtual void end() = 0;
  struct Holder {
    int process = 0;
    std::uint64_t bytes = 0;
  };
  /// While this process runs short: the others with a part of the limit, the largest first.
  virtual std::vector<Holder> others() const = 0;
};

/// Holds regions in use that end soon once room is short: those that peers hold.
class Occupant {
 public:
  virtual ~Occupant() = default;
  /// Notes that so many bytes are missing. True: some are coming, and departures() change with them. Called
  /// under the budget's mutex.
  virtual bool asked_for(std::uint64_t bytes) = 0;
};

/// The excess of a process over its limits, by registrations of its own that pass Pinion by.
struct BeyondLimits {
  std::uint64_t bytes = 0, regions = 0;  ///< at most
  Duration time = 0;                     ///< in all
};

class Budget {
 public:
  /// `allowance` may be null, and else outlives the budget.
  explicit Budget(Limits limits, Allowance* allowance = nullptr)
      : limits_(std::move(limits)), allowance_(allowance) {}

  /// Reserves both or nothing.
  bool reserve(std::uint64_t bytes, Time now = 0) {
    const MutexLock lock(mutex_);
    const std::uint64_t held = this->bytes();
    if (regions() >= most_regions() || bytes > limits_.bytes || held > limits_.bytes - bytes) return false;
    if (held + bytes > peak_goal_.bytes()) return false;
    if (allowance_ && held + bytes > allowance_->bytes()) {
      allowance_->raise(held + bytes);
      if (held + bytes > allowance_->bytes()) return false;
    }
    if (!room_.allows(held + bytes, now)) return false;
    peak_goal_.raise_to(held + bytes);
    bytes_.store(held + bytes, std::memory_order_relaxed);
    regions_.store(regions() + 1, std::memory_order_relaxed);
    return true;
  }
  void release(std::uint64_t bytes, Time now = 0) {
    const MutexLock lock(mutex_);
    bytes_.store(this->bytes() - bytes, std::memory_order_relaxed);
    regions_.store(regions() - 1, std::memory_order_relaxed);
    if (beyond_since_ != 0) follow_beyond(now);
  }
  /// Instead of reserve(), for a registration that the program makes without Pinion: it counts, also where
  /// it exceeds the limits.
  void exceed(std::uint64_t bytes, Time now) {
    const MutexLock lock(mutex_);
    const std::uint64_t held = this->bytes() + bytes;
    if (allowance_ && held > allowance_->bytes()) allowance_->raise(held);
    peak_goal_.raise_to(held);
    bytes_.store(held, std::memory_order_relaxed);
    regions_.store(regions() + 1, std::memory_order_relaxed);
    follow_beyond(now);
  }
  BeyondLimits beyond(Time now) const {
    const MutexLock lock(mutex_);
    BeyondLimits beyond = beyond_;
    if (beyond_since_ != 0) beyond.time += std::max<Duration>(0, now - beyond_since_);
    return beyond;
  }

  // ---- regions on their way out: claimed for deregistration, and reserved until that is done ----

  void leaves(std::uint64_t bytes) {
    leaving_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    leaving_regions_.fetch_add(1, std::memory_order_relaxed);
  }
  /// Gone, after release(); or the device refused.
  void left(std::uint64_t bytes) {
    leaving_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    leaving_regions_.fetch_sub(1, std::memory_order_relaxed);
    departures_.end();
  }
  std::uint64_t leaving_regions() const { return leaving_regions_.load(std::memory_order_relaxed); }
  std::uint64_t leaving_bytes() const { return leaving_bytes_.load(std::memory_order_relaxed); }
  /// Counts left(); threads that need the room wait for it to change.
  Transitions& departures() { return departures_; }

  // ---- occupants; each stays until it is removed ----

  void add(Occupant& occupant) {
    const MutexLock lock(mutex_);
    occupants_.push_back(&occupant);
  }
  void remove(Occupant& occupant) {
    const MutexLock lock(mutex_);
    std::erase(occupants_, &occupant);
  }
  /// Asks for as much room as `bytes` in a region more lack. True: some is coming.
  bool ask_occupants(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    const std::uint64_t most = most_bytes(), wanted = this->bytes() + bytes;
    bool coming = false;
    for (Occupant* occupant : occupants_)
      coming |= occupant->asked_for(std::max<std::uint64_t>(1, wanted - std::min(wanted, most)));
    return coming;
  }

  /// Instead of release(): the system has refused to register these bytes, for want of room.
  void release_refused(std::uint64_t bytes, const Error& why, Time now) {
    const MutexLock lock(mutex_);
    room_.refused(this->bytes(), why, now);
    learned_.store(room_.most(), std::memory_order_relaxed);
    bytes_.store(this->bytes() - bytes, std::memory_order_relaxed);
    regions_.store(regions() - 1, std::memory_order_relaxed);
    if (beyond_since_ != 0) follow_beyond(now);
  }
  /// Notes that the last reservation is registered.
  void registered() {
    if (bytes() <= learned_.load(std::memory_order_relaxed)) return;
    const MutexLock lock(mutex_);
    room_.exceeded();
    learned_.store(room_.most(), std::memory_order_relaxed);
  }
  /// The system's reason to refuse more than most_bytes(); empty if it refuses nothing.
  Error refusal() const {
    const MutexLock lock(mutex_);
    return room_.most() < limits_.bytes ? room_.refusal() : Error{};
  }

  /// Other processes have a share in its bytes.
  bool is_shared() const { return allowance_ != nullptr; }
  PeakGoal& peak_goal() { return peak_goal_; }
  /// Raises the goal, so that so many bytes may be reserved.
  void raise_peak_goal(std::uint64_t bytes) {
    const MutexLock lock(mutex_);
    peak_goal_.raise_to(bytes);
  }
  /// Whether the node, or a control group of the process, is short of memory (node/pressure.h).
  bool memory_is_short() const { return memory_short_.load(std::memory_order_relaxed); }
  void set_memory_short(bool is_short) { memory_short_.store(is_short, std::memory_order_relaxed); }

  /// Returns the unreserved bytes to the other processes, except `keep_at_hand`.
  void give_back(std::uint64_t keep_at_hand) {
    const MutexLock lock(mutex_);
    if (allowance_) allowance_->lower(bytes() + keep_at_hand);
  }

  /// Ends the allowance: from now on only the bytes held of it may be reserved.
  void end_allowance() {
    const MutexLock lock(mutex_);
    if (allowance_) allowance_->end();
  }

  /// The processes that hold the rest of a limit of the node, where this one runs short of it.
  std::vector<Allowance::Holder> others() const {
    const MutexLock lock(mutex_);
    return allowance_ ? allowance_->others() : std::vector<Allowance::Holder>{};
  }

  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t regions() const { return regions_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return limits_; }
  /// The most regions that may be reserved at the moment, and where that comes from.
  std::uint64_t most_regions() const {
    return std::min(limits_.regions, mapped_.load(std::memory_order_relaxed));
  }
  const char* regions_from() const {
    return most_regions() == limits_.regions ? "--limit-regions" : "vm.max_map_count";
  }
  /// The mappings that the kernel leaves the process are enough for so many regions at the moment.
  void bound_regions(std::uint64_t most) { mapped_.store(most, std::memory_order_relaxed); }
  /// The most bytes that may be reserved at the moment without a higher peak.
  std::uint64_t desired_bytes() const { return std::min(most_bytes(), peak_goal_.bytes()); }
  /// The most bytes that may be reserved at the moment.
  std::uint64_t most_bytes() const {
    const std::uint64_t most = std::min(limits_.bytes, learned_.load(std::memory_order_relaxed));
    return allowance_ ? std::min(most, allowance_->bytes()) : most;
  }

 private:
  void follow_beyond(Time now) REQUIRES(mutex_) {
    const std::uint64_t most = allowance_ ? std::min(limits_.bytes, allowance_->bytes()) : limits_.bytes;
    const std::uint64_t bytes = this->bytes() - std::min(this->bytes(), most);
    const std::uint64_t regions = this->regions() - std::min(this->regions(), limits_.regions);
    beyond_.bytes = std::max(beyond_.bytes, bytes);
    beyond_.regions = std::max(beyond_.regions, regions);
    const bool is_beyond = bytes != 0 || regions != 0;
    if (is_beyond == (beyond_since_ != 0)) return;
    if (!is_beyond) beyond_.time += std::max<Duration>(0, now - beyond_since_);
    beyond_since_ = is_beyond ? now : 0;
  }

  const Limits limits_;
  Allowance* const allowance_;
  mutable Mutex mutex_;  ///< guards writing to all that follows, and the allowance
  LearnedRoom room_ GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> learned_{UINT64_MAX};  ///< room_.most()
  std::atomic<std::uint64_t> mapped_{UINT64_MAX};   ///< bound_regions()
  PeakGoal peak_goal_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> regions_{0};
  BeyondLimits beyond_ GUARDED_BY(mutex_);    ///< but for the time that runs
  Time beyond_since_ GUARDED_BY(mutex_) = 0;  ///< 0: within the limits
  std::atomic<std::uint64_t> leaving_bytes_{0}, leaving_regions_{0};
  std::atomic<bool> memory_short_{false};
  Transitions departures_;
  std::vector<Occupant*> occupants_ GUARDED_BY(mutex_);
};

}  // namespace pinion
