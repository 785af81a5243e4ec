// Runs of hits on settled regions (Region::settled_until): such a hit leaves all decisions as they are, so
// it is counted here instead of leaving a record of its own. A run ends in one record for all its uses. A hit
// after a gap of more than Region::settled_gap leaves a record: its region may have ceased to be settled.
//
// Owned by a thread, as its ring is. Each call site and buffer has a place; where two meet, the older run
// ends.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "retention/record.h"

namespace pinion {

class UseRuns {
 public:
  /// Returns whether a run is open. Otherwise end_or_count() is for hits on settled regions only.
  bool any() const { return open_ != 0; }

  /// A lease has ended. `settled`: it began while its region was. True: it is counted. Else it leaves its own
  /// record, after those that `ended(record)` is called for.
  template <class F>
  bool end_or_count(const Record& lease, bool settled, F&& ended) {
    end_old(lease.end, ended);
    settled = settled && may_be_counted(lease);
    Run& run = runs_[place(lease.address ^ lease.site)];
    if (settled && soon_again(lease) && run.count < kMost && is_alike(run.first, lease)) {
      count(run, lease);
      return true;
    }
    end(run, ended);
    run.first = settled ? lease : Record{};
    return false;
  }
  template <class F>
  void end_all(F&& ended) {
    for (Run& run : runs_) end(run, ended);
  }

 private:
  static constexpr std::size_t kRuns = 16;
  static constexpr std::uint32_t kMost = UINT32_MAX;

  struct Run {
    Record first;  ///< which left a record of its own; of kind `none`: no run may begin
    Ticks begin = 0, end = 0, leased = 0;
    std::uint32_t count = 0;  ///< 0: not open
  };

  static std::size_t place(std::uint64_t of) { return (of * 0x9E3779B97F4A7C15ull) >> 60; }
  static bool may_be_counted(const Record& lease) {
    return lease.kind == runlog::EventKind::lease && lease.outcome == runlog::Outcome::hit &&
           lease.flags == 0;
  }
  static bool is_alike(const Record& a, const Record& b) {
    return a.address == b.address && a.site == b.site && a.region_line == b.region_line &&
           a.region_generation == b.region_generation && a.access == b.access && a.bytes == b.bytes &&
           a.call == b.call && a.flags == b.flags && a.kind == b.kind && a.outcome == b.outcome &&
           a.domain == b.domain && a.peer == b.peer;
  }
  /// The thread used the region a short time ago.
  bool soon_again(const Record& lease) {
    const Ticks before = std::exchange(used_[place(lease.region_line)], lease.end);
    return lease.begin < before + lease.region().region->settled_gap.load(std::memory_order_relaxed);
  }
  void count(Run& run, const Record& lease) {
    if (run.count++ == 0) {
      run.begin = lease.begin;
      run.leased = 0;
      ++open_;
    }
    run.end = lease.end;
    run.leased += lease.end - lease.begin;
  }
  template <class F>
  void end(Run& run, F&& ended) {
    if (run.count == 0) return;
    Record record = run.first;
    record.kind = runlog::EventKind::uses;
    record.begin = run.begin;
    record.end = run.end;
    record.wait = run.count;
    record.delayed = run.leased;
    run.count = 0;
    --open_;
    ended(record);
  }
  /// One place after the other, so that each run ends soon after its last use.
  template <class F>
  void end_old(Ticks now, F&& ended) {
    Run& run = runs_[next_++ % kRuns];
    if (run.count != 0 && now - run.end > kOld) end(run, ended);
  }
  static constexpr Ticks kOld = 1 << 27;  ///< some 50 ms at 2.6 GHz

  std::array<Run, kRuns> runs_{};
  std::array<Ticks, kRuns> used_{};  ///< the ends of the latest leases of regions
  std::uint32_t open_ = 0, next_ = 0;
};

}  // namespace pinion
