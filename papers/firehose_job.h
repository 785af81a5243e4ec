// Firehose on a virtual clock: a process whose memory all others of a job put to. Its owner, and the
// initiators of the others, run the code of src/firehose. A job's processes are alike, and firehoses at one
// of them have no effect on those at another, so this process stands for all. Pure; callable from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "device/model/cost_model.h"
#include "firehose/quota.h"

namespace pinion::simulate {

enum class FirehosePattern {
  uniform,  ///< each peer puts to all of the working set, which they share
  skewed,   ///< the k-th peer puts a k-th as often as the first, to a working set of its own, by Zipf's law
  neighbours,  ///< six peers put, each to a working set of its own; the others never do
  periodic,    ///< the same, each to the buckets of its working set in turn, again and again
  strided      ///< the same, to every eighth one in turn, then to those behind them
};

struct FirehoseJob {
  firehose::Quota quota;  ///< its processes are the job's
  std::size_t bucket = std::size_t{64} << 10;
  FirehosePattern pattern = FirehosePattern::uniform;
  std::uint64_t working_set = 128;      ///< buckets
  std::uint64_t puts = 1'000'000;       ///< number of all peers' puts; the first half only warms up
  Duration put = 2 * kMicrosecond;      ///< time to delivery
  Duration message = 2 * kMicrosecond;  ///< one way, with its handling
  bool rides = true;                    ///< the data of a miss travels with it
  Duration pause = 5 * kMicrosecond;    ///< the busiest peer's, between its puts
  CostModel nic;
  std::uint64_t seed = 1;
};

/// The figures of the second half of the puts, except the sums that are said to be of the run.
struct FirehoseResult {
  std::uint64_t puts = 0, hits = 0;
  std::uint64_t refused = 0;             ///< went by message
  std::uint64_t first = 0;               ///< first puts of a peer to a bucket: no strategy hits these
  Duration hit_time = 0, miss_time = 0;  ///< sums, to delivery
  std::uint64_t pins = 0, unpins = 0, victim_hits = 0, shared_hits = 0;  ///< the run's
  std::uint64_t messages = 0;                                            ///< control messages of the run
  std::uint64_t peak = 0;                                                ///< buckets registered; of the run
  double mean = 0;                                                       ///< buckets registered

  double hit_rate() const { return rate(hits); }
  /// The hit rate of the paper's pin-everything, and of an unlimited firehose: all but the first put to each
  /// bucket.
  double most_hits() const { return rate(puts - first); }
  double latency_us() const { return us(hit_time + miss_time, puts); }
  double hit_us() const { return us(hit_time, hits); }
  double miss_us() const { return us(miss_time, puts - hits); }

 private:
  double rate(std::uint64_t of) const {
    return puts ? static_cast<double>(of) / static_cast<double>(puts) : 0;
  }
  static double us(Duration sum, std::uint64_t count) {
    return count ? static_cast<double>(sum) / 1e3 / static_cast<double>(count) : 0;
  }
};

FirehoseResult simulate_firehose(const FirehoseJob& job);

/// For comparison: each peer has F firehoses, and a miss replaces the oldest. Hits alone, without times.
FirehoseResult simulate_fifo(const FirehoseJob& job);

/// Rendezvous, for comparison: each put asks its target to register the bucket. `unpins`: and to deregister
/// it afterwards; else it stays, without bound.
FirehoseResult simulate_rendezvous(const FirehoseJob& job, bool unpins);

}  // namespace pinion::simulate
