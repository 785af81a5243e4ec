// How the program's copies between host memory and GPUs went: a front counts, the run's counters are told.
// One set a process; it lasts as long as the process. Any thread; relaxed atomics.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "runlog/format.h"

namespace pinion {

class CopyCounters {
 public:
  /// Counts a copy that took so long, from its call to its return.
  void add(bool to_gpu, runlog::CopyWay way, std::uint64_t bytes, Duration took) {
    Cell& cell = cells_[to_gpu ? 0 : 1][static_cast<unsigned>(way)];
    cell.count.fetch_add(1, std::memory_order_relaxed);
    cell.bytes.fetch_add(bytes, std::memory_order_relaxed);
    cell.ns.fetch_add(static_cast<std::uint64_t>(took), std::memory_order_relaxed);
  }
  /// Counts a copy whose bytes were compared at both ends.
  void add_verdict(bool differs) {
    verified_.fetch_add(1, std::memory_order_relaxed);
    if (differs) differing_.fetch_add(1, std::memory_order_relaxed);
  }
  void add_to(runlog::Counters& sum) const {
    sum.copies_verified += verified_.load(std::memory_order_relaxed);
    sum.copies_differing += differing_.load(std::memory_order_relaxed);
    for (unsigned way = 0; way < runlog::kCopyWays; ++way) {
      cells_[0][way].add_to(sum.copies_to_gpu[way]);
      cells_[1][way].add_to(sum.copies_from_gpu[way]);
    }
  }

 private:
  struct Cell {
    void add_to(runlog::Copies& sum) const {
      sum.count += count.load(std::memory_order_relaxed);
      sum.bytes += bytes.load(std::memory_order_relaxed);
      sum.ns += ns.load(std::memory_order_relaxed);
    }
    std::atomic<std::uint64_t> count{0}, bytes{0}, ns{0};
  };
  Cell cells_[2][runlog::kCopyWays];
  std::atomic<std::uint64_t> verified_{0}, differing_{0};
};

/// Those of the process.
CopyCounters& copy_counters();

}  // namespace pinion
