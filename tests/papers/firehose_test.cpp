// Firehose on the virtual clock: static shares, lending and rendezvous over the patterns of jobs.
#include <gtest/gtest.h>

#include "papers/firehose_job.h"

namespace pinion::simulate {
namespace {

using firehose::Sharing;

FirehoseJob job_of(FirehosePattern pattern, firehose::Peer nodes, Sharing sharing) {
  FirehoseJob job;
  job.quota = {sharing, 256, 16, nodes};
  job.pattern = pattern;
  job.working_set = 32;
  job.puts = 40'000;
  job.nic = load_cost_model("connectx").model;
  return job;
}

TEST(SimulateFirehose, MemoryStaysBelowItsBound) {
  for (const auto pattern :
       {FirehosePattern::uniform, FirehosePattern::skewed, FirehosePattern::neighbours}) {
    for (const auto sharing : {Sharing::static_share, Sharing::lending}) {
      for (const firehose::Peer nodes : {2u, 33u, 500u}) {
        const FirehoseResult result = simulate_firehose(job_of(pattern, nodes, sharing));
        EXPECT_LE(result.peak, 256u + 16u);
        EXPECT_EQ(result.puts, 20'000u) << "every put ends";
      }
    }
  }
}

TEST(SimulateFirehose, MissesAreTheFirstPutsWhereMemoryIsEnough) {
  const FirehoseResult result =
      simulate_firehose(job_of(FirehosePattern::neighbours, 7, Sharing::static_share));
  EXPECT_EQ(result.hits, result.puts - result.first);
  EXPECT_EQ(result.pins, 6u * 32u);
  EXPECT_EQ(result.unpins, 0u);
}

// F falls to 1 with 257 nodes and to 0 with more. Six of the peers put.
TEST(SimulateFirehose, LentFirehosesKeepTheHitsAsTheJobGrows) {
  for (const firehose::Peer nodes : {65u, 257u, 1'000u}) {
    const auto hits = [&](Sharing sharing) {
      return simulate_firehose(job_of(FirehosePattern::neighbours, nodes, sharing)).hit_rate();
    };
    EXPECT_GT(hits(Sharing::lending), 0.99) << nodes;
    EXPECT_LT(hits(Sharing::static_share), 0.2) << nodes;
  }
}

// Moves beyond M that cost more than messages are rare: a put takes as long as a message instead of a queue
// of registrations.
TEST(SimulateFirehose, BeyondItsMemoryLendingFallsBackToMessages) {
  FirehoseJob job = job_of(FirehosePattern::skewed, 129, Sharing::lending);
  job.quota.move_time = 20 * kMicrosecond;
  const FirehoseResult lending = simulate_firehose(job);
  job.quota.sharing = Sharing::static_share;
  const FirehoseResult equal = simulate_firehose(job);
  EXPECT_LT(lending.latency_us() * 5, equal.latency_us());
  EXPECT_LT(lending.pins * 5, equal.pins);
}

// Each of six peers walks through one and a half times its share, again and again: whatever was used last is
// wanted latest. Plain FIFO has lost each bucket when its turn comes.
TEST(SimulateFirehose, BeyondItsMemoryAPeriodicSetKeepsAPart) {
  FirehoseJob job = job_of(FirehosePattern::periodic, 7, Sharing::lending);
  job.working_set = 64;
  job.quota.move_time = 20 * kMicrosecond;
  const double part = 256.0 / (6 * 64);
  EXPECT_GT(simulate_firehose(job).hit_rate(), 0.8 * part);
  EXPECT_EQ(simulate_fifo(job).hits, 0u);
}

// Some buckets are put to more often than others: these stay.
TEST(SimulateFirehose, BeyondItsMemoryBucketsInUseStay) {
  FirehoseJob job = job_of(FirehosePattern::skewed, 7, Sharing::lending);
  job.working_set = 256;
  job.quota.move_time = 20 * kMicrosecond;
  EXPECT_GT(simulate_firehose(job).hit_rate(), simulate_fifo(job).hit_rate() + 0.05);
}

// One peer puts to random places of twice to eight times the memory, at tcp's times: buckets that are used
// alike rarely replace each other.
TEST(SimulateFirehose, BeyondItsMemoryBucketsUsedAlikeStay) {
  for (const std::uint64_t times : {2u, 4u, 8u}) {
    FirehoseJob job = job_of(FirehosePattern::uniform, 2, Sharing::lending);
    job.quota.buckets = 16;
    job.quota.victims = 1;
    job.quota.move_time = 150 * kMicrosecond;
    job.working_set = times * job.quota.buckets;
    job.put = 32 * kMicrosecond;
    job.message = 20 * kMicrosecond;
    job.pause = kMicrosecond;
    job.nic.register_ns_base = 100'000;
    job.nic.deregister_ns_base = 30'000;
    const FirehoseResult result = simulate_firehose(job);
    EXPECT_GT(result.hit_rate(), 0.9 / static_cast<double>(times)) << times;
    EXPECT_LT(result.pins, 400u) << times;
  }
}

// Twenty puts of each peer are over while the first registrations still run.
TEST(SimulateFirehose, PutsDoNotWaitForRegistrations) {
  const FirehoseJob job = job_of(FirehosePattern::uniform, 2'000, Sharing::lending);
  EXPECT_LE(simulate_firehose(job).latency_us(), static_cast<double>(2 * job.message) / 1e3);
}

// Each goes through its set once, by columns. Three of four buckets are asked for ahead, with a fourth.
TEST(SimulateFirehose, AWalkMissesOneOfFourBuckets) {
  for (const auto pattern : {FirehosePattern::periodic, FirehosePattern::strided}) {
    FirehoseJob job = job_of(pattern, 7, Sharing::lending);
    job.quota.buckets = 8'192;
    job.working_set = 512;
    job.puts = 6 * job.working_set;
    job.pause = kMillisecond;
    const FirehoseResult result = simulate_firehose(job);
    EXPECT_GT(result.hit_rate(), 0.65);
    EXPECT_LT(2 * result.messages, 3 * job.puts) << "a question for four, and each one's grant";
  }
}

TEST(SimulateFirehose, RendezvousPaysAtEachPut) {
  FirehoseJob job = job_of(FirehosePattern::uniform, 2, Sharing::static_share);
  job.bucket = 4096;
  job.nic = load_cost_model("myrinet").model;
  const FirehoseResult unpinning = simulate_rendezvous(job, true), keeping = simulate_rendezvous(job, false);
  EXPECT_GT(unpinning.latency_us(), 6'000);
  EXPECT_LT(keeping.latency_us(), 100);
  EXPECT_EQ(unpinning.peak, 1u);
  EXPECT_EQ(keeping.peak, 32u);
}

}  // namespace
}  // namespace pinion::simulate
