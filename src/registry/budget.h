// The process-wide budget of registered memory, shared by all domains: bytes and number of regions.
// reserve() and release() may be called from any thread, never from a hook; one compare-and-swap each.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
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
/// node's memory, the device's caps. The cgroup's and the node's memory are shared by the ranks as well.
Limits find_limits(std::uint64_t user_bytes, std::uint64_t user_regions, const DeviceCaps& caps,
                   int local_processes);

class Budget {
 public:
  explicit Budget(Limits limits) : limits_(std::move(limits)) {}

  /// Reserves both or nothing.
  bool reserve(std::uint64_t bytes) {
    if (regions_.fetch_add(1, std::memory_order_relaxed) >= limits_.regions) {
      regions_.fetch_sub(1, std::memory_order_relaxed);
      return false;
    }
    std::uint64_t now = bytes_.load(std::memory_order_relaxed);
    do {
      if (bytes > limits_.bytes || now > limits_.bytes - bytes) {
        regions_.fetch_sub(1, std::memory_order_relaxed);
        return false;
      }
    } while (!bytes_.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
  }
  void release(std::uint64_t bytes) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    regions_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  std::uint64_t regions() const { return regions_.load(std::memory_order_relaxed); }
  const Limits& limits() const { return limits_; }

 private:
  const Limits limits_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> regions_{0};
};

}  // namespace pinion
