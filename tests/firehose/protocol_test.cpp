// The firehose protocol in every order of its events: small jobs, explored to the end.
#include <gtest/gtest.h>

#include "support/deterministic_scheduler.h"
#include "support/firehose_world.h"

namespace pinion {
namespace {

using firehose::Quota;
using firehose::Sharing;
using test::explore;
using test::Fault;
using test::MadeJob;

constexpr std::uint64_t kMost = 3'000'000;

Quota quota(Sharing sharing, std::uint64_t buckets, std::uint64_t victims, firehose::Peer processes) {
  return {sharing, buckets, victims, processes};
}

MadeJob job_of(const Quota& quota) {
  MadeJob job;
  job.quota = quota;
  return job;
}

/// To its end, without a violation.
void expect_right(const MadeJob& job) {
  const auto explored = explore(job, kMost);
  EXPECT_EQ(explored.violation, "");
  EXPECT_LT(explored.states, kMost) << "not all orders were tried";
  EXPECT_GT(explored.ends, 0u);
  ::testing::Test::RecordProperty("states", std::to_string(explored.states));
}

class EachSharing : public ::testing::TestWithParam<Sharing> {};
INSTANTIATE_TEST_SUITE_P(FirehoseProtocol, EachSharing,
                         ::testing::Values(Sharing::static_share, Sharing::lending), [](const auto& info) {
                           return info.param == Sharing::lending ? "lending" : "static_share";
                         });

// One bucket's memory changes, twice, while a peer puts to it.
TEST_P(EachSharing, PutsRaceWithRevocations) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}}, {0, {0}}}};
  job.revocations = {{{0, 1}, {0, 1}}};
  expect_right(job);
}

// More buckets than firehoses: victims leave with the moves, and are wanted again.
TEST_P(EachSharing, FirehosesMove) {
  MadeJob job = job_of(quota(GetParam(), 1, 0, 2));
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {0}}, {0, {2}}}};
  job.revocations = {{{0, 2}}};
  expect_right(job);
}

TEST_P(EachSharing, SmallPutsTravelWithTheirMisses) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}}, {0, {1}}, {0, {0}}}};
  job.revocations = {{{0, 1}, {0, 2}}};
  job.rides = true;
  expect_right(job);
}

TEST_P(EachSharing, PutsOverSeveralBuckets) {
  MadeJob job = job_of(quota(GetParam(), 2, 1, 2));
  job.puts = {{}, {{0, {0, 1}}, {0, {1, 2}}}};
  job.revocations = {{{1, 1}}};
  expect_right(job);
}

TEST_P(EachSharing, RevocationsAtBothEndsAtOnce) {
  MadeJob job = job_of(quota(GetParam(), 1, 0, 2));
  job.puts = {{{1, {0}}, {1, {1}}}, {{0, {0}}}};
  job.revocations = {{{0, 1}}, {{0, 2}}};
  expect_right(job);
}

TEST_P(EachSharing, OverlappingRevocations) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 2));
  job.puts = {{}, {{0, {0, 1}}, {0, {1}}}};
  job.revocations = {{{0, 2}, {1, 1}}};
  expect_right(job);
}

TEST_P(EachSharing, TwoPeersShareABucket) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 3));
  job.puts = {{}, {{0, {0}}}, {{0, {0}}, {0, {1}}}};
  job.revocations = {{{0, 1}}};
  expect_right(job);
}

TEST_P(EachSharing, RegistrationsFail) {
  MadeJob job = job_of(quota(GetParam(), 1, 0, 2));
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {0}}}};
  job.revocations = {{{0, 1}}};
  job.pins_fail = true;
  expect_right(job);
}

TEST_P(EachSharing, APeerDies) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{{1, {0}}, {1, {1}}}, {{0, {0}}, {0, {1}}}};
  job.revocations = {{{0, 1}}};
  job.one_dies = true;
  expect_right(job);
}

TEST_P(EachSharing, APeerDiesThatShares) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 3));
  job.puts = {{}, {{0, {0}}}, {{0, {0}}}};
  job.revocations = {{{0, 1}}};
  job.one_dies = true;
  expect_right(job);
}

TEST_P(EachSharing, ARecallTimesOut) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 3));
  job.puts = {{}, {{0, {0}}}, {{0, {0}}, {0, {0}}}};
  job.revocations = {{{0, 1}}};
  job.timeouts = true;
  expect_right(job);
}

// A call that waits for the holders fails after all. Later revocations reach every holder.
TEST_P(EachSharing, ARevocationIsGivenUp) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 3));
  job.puts = {{}, {{0, {0}}}, {{0, {0}}}};
  job.revocations = {{{0, 1}, {0, 1}}};
  job.gives_up = true;
  expect_right(job);
}

TEST_P(EachSharing, MemoryForPeersShrinks) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 2));
  job.puts = {{}, {{0, {0, 1}}, {0, {1}}, {0, {2}}}};
  job.resized = 1;
  expect_right(job);
}

// To nothing, and back: the peer asks again.
TEST_P(EachSharing, MemoryForPeersShrinksAndGrows) {
  MadeJob job = job_of(quota(GetParam(), 1, 0, 2));
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {0}}}};
  job.resized = 2;
  expect_right(job);
}

// Registered anew, as memory was mapped beside it: like a recall, without a change of memory.
TEST_P(EachSharing, ABucketIsRenewed) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}}, {0, {1}}}};
  job.revocations = {{{0, 1}}};
  job.renewed = 2;
  expect_right(job);
}

// A message to its owner finds no memory. The puts under way land in memory that is still registered.
TEST_P(EachSharing, APeerCutsItsOwnerOff) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{{1, {0}}}, {{0, {0}}, {0, {1}}, {0, {0}}}};
  job.revocations = {{{0, 1}}};
  job.cuts = true;
  expect_right(job);
}

// Victims are those expected latest, and another peer gives back what it expects later.
TEST(FirehoseLending, MovesByPrediction) {
  MadeJob job = job_of(quota(Sharing::lending, 2, 0, 3));
  job.predicts = true;
  job.quota.move_time = 50;
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {0}}, {0, {2}}}, {{0, {3}}}};
  expect_right(job);
}

// A peer that waits for its moves to pay goes by message meanwhile.
TEST(FirehoseLending, MovesThatCostMore) {
  MadeJob job = job_of(quota(Sharing::lending, 1, 0, 2));
  job.quota.move_time = 100;
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {0}}, {0, {1}}}};
  job.revocations = {{{0, 1}}};
  expect_right(job);
}

// Three take turns at one bucket's worth of memory: each is asked to give back.
TEST(FirehoseLending, OnePlaceForTwoPeers) {
  MadeJob job = job_of(quota(Sharing::lending, 1, 0, 3));
  job.puts = {{}, {{0, {0}}, {0, {1}}}, {{0, {1}}, {0, {2}}}};
  job.revocations = {{{1, 1}}};
  expect_right(job);
}

// The owner's memory changes while peers hold it, and while their atomics on it arrive.
TEST_P(EachSharing, AtomicsOnMemoryThatChanges) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}, true}, {0, {0}}, {0, {0}, true}}};
  job.revocations = {{{0, 1}, {0, 1}}};
  expect_right(job);
}

TEST_P(EachSharing, AtomicsOfAPeerWhileAnotherHoldsTheMemory) {
  MadeJob job = job_of(quota(GetParam(), 2, 0, 3));
  job.puts = {{}, {{0, {0}}}, {{0, {0}, true}, {0, {1}, true}}};
  job.revocations = {{{0, 1}}};
  job.one_dies = true;
  expect_right(job);
}

TEST(FirehoseAtomics, AWaitInsideProgressIsFound) {
  MadeJob job = job_of(quota(Sharing::lending, 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}, true}}};
  job.revocations = {{{0, 1}}};
  job.fault = Fault::waiting_in_progress;
  const std::string found = explore(job, kMost).violation;
  EXPECT_NE(found.find("never ends"), std::string::npos) << found;
  job.fault = Fault::none;
  expect_right(job);
}

// A bucket is registered in the place of one whose deregistration is still under way.
TEST_P(EachSharing, MoreThanTheBoundIsFound) {
  MadeJob job = job_of(quota(GetParam(), 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {1}}, {0, {2}}, {0, {0}}}};
  job.fault = Fault::unpins_count_at_once;
  EXPECT_EQ(explore(job, kMost).violation, "more than M + MAXVICTIM is registered");
  job.fault = Fault::none;
  expect_right(job);
}

// The model finds faults.
class EachFault : public ::testing::TestWithParam<Fault> {};
INSTANTIATE_TEST_SUITE_P(FirehoseProtocol, EachFault,
                         ::testing::Values(Fault::change_without_recall, Fault::release_too_early,
                                           Fault::use_not_counted, Fault::overtaking, Fault::lost_release,
                                           Fault::granting_while_revoking));

TEST_P(EachFault, IsFound) {
  MadeJob job = job_of(quota(Sharing::lending, 1, 1, 2));
  job.puts = {{}, {{0, {0}}, {0, {0}}, {0, {0}}}};
  job.revocations = {{{0, 1}, {0, 1}}};
  job.fault = GetParam();
  EXPECT_NE(explore(job, kMost).violation, "");
}

}  // namespace
}  // namespace pinion
