// The process-wide budget of registered memory, shared by all domains: bytes and number of regions. What of
// the bytes the process may use at the moment can be less than its limit: its share of a limit of the node,
// which an Allowance gets from the node's other processes (node/node_share.h). Any thread, never from a hook;
// one short mutex, and no hit comes here.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "device/device.h"

namespace pinion {

/// Limits in force and where each came from, for errors and reports.
struct Limits {
  std::uint64_t bytes = UINT64_MAX;
  std::uint64_t regions = UINT64_MAX;
  std::string bytes_from = "no limit";
};

/// The least of: the user's limit (0: none), RLIMIT_MEMLOCK (of a user without CAP_IPC_LOCK; it counts per
/// user, so it is shared by the `local_processes` ranks of the node), the cgroup's memory limit, half of the
/// node's memory, the device's caps, all of a limit of the node. The cgroup's and the node's memory are
/// shared by the ranks as well.
Limits find_limits(std::uint64_t user_bytes, std::uint64_t user_regions, const DeviceCaps& caps,
                   int local_processes, std::uint64_t node_bytes = 0);

/// A share of what several processes may register together. Called under the budget's mutex.
class Allowance {
 public:
  virtual ~Allowance() = default;
  /// What the process may hold.
  virtual std::uint64_t bytes() const = 0;
  /// Asks for `bytes` in all; bytes() then says what there is.
  virtual void raise(std::uint64_t bytes) = 0;
  /// Gives back what is beyond `bytes`, as far as it can be given back.
  virtual void lower(std::uint64_t bytes) = 0;
  /// Nothing is asked for, or given back, from now on.
  virtual void end() = 0;
};

class Budget {
 public:
  /// `allowance` may be null, and else outlives the budget.
  explicit Budget(Limits limits, Allowance* allowance = nullptr)
      : limits_(std::move(limits)), allowance_(allowance) {}

  /// Reserves both or nothing.
  bool reserve(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    const std::uint64_t now = this->bytes();
    if (regions() >= limits_.regions || bytes > limits_.bytes || now > limits_.bytes - bytes) return false;
    if (allowance_ && now + bytes > allowance_->bytes()) {
      allowance_->raise(now + bytes);
      if (now + bytes > allowance_->bytes()) return false;
    }
    bytes_.store(now + bytes, std::memory_order_relaxed);
    regions_.store(regions() + 1, std::memory_order_relaxed);
    return true;
  }
  void release(std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_.store(this->bytes() - bytes, std::memory_order_relaxed);
    regions_.store(regions() - 1, std::memory_order_relaxed);
  }
  /// Leaves others what is neither reserved nor, beyond that, worth keeping at hand.
  void give_back(std::uint64_t keep_at_hand) {
    std::lock_guard lock(mutex_);
    if (allowance_) allowance_->lower(bytes() + keep_at_hand);
  }

  /// The last call that the allowance gets; only what is held of it may be reserved from now on.
  void end_allowance() {
    std::lock_guard lock(mutex_);
    if (allowance_) allowance_->end();
  }

  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t regions() const { return regions_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return limits_; }
  /// What may be reserved in all at the moment.
  std::uint64_t most_bytes() const {
    return allowance_ ? std::min(limits_.bytes, allowance_->bytes()) : limits_.bytes;
  }

 private:
  const Limits limits_;
  Allowance* const allowance_;
  std::mutex mutex_;  ///< guards writing to what follows, and the allowance
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> regions_{0};
};

}  // namespace pinion
