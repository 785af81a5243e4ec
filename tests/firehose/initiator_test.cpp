// An initiator and an owner that the test plays: which misses ask, and what travels with them.
#include "firehose/initiator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace pinion {
namespace {

using namespace firehose;

struct Played {
  static constexpr Bucket kEnd = 1'000'000;
  Initiator initiator{1, 4, kEnd};
  std::vector<Move> moves;
  std::vector<Waiter*> riders, granted_to;
  bool takes_riders = false;
  Waiter waiter;

  /// Takes the actions of an event. Returns the number of moves among them.
  std::size_t act() {
    const std::size_t before = moves.size();
    while (const auto sent = initiator.next_message())
      if (const auto* move = std::get_if<Move>(&sent->message)) moves.push_back(*move);
    while (Waiter* const answered = initiator.next_answered()) {
      if (!answered->firehose) continue;
      granted_to.push_back(answered);
      end(*answered->firehose);
    }
    return moves.size() - before;
  }
  void end(Firehose& firehose) {
    if (!initiator.end_use(firehose)) return;
    initiator.drained(firehose);
    act();
  }
  Initiator::Need miss(Bucket bucket) {
    const auto needed = initiator.need(0, bucket, waiter);
    act();
    initiator.flush();
    if (act() > 0 && takes_riders) {
      riders.push_back(&waiter);
      initiator.rode(0, bucket);
    }
    return needed.what;
  }
  /// Grants all that was wanted.
  void answer(std::uint32_t delay) {
    for (const Move& move : std::exchange(moves, {})) {
      Answer answer;
      answer.limit = limit;
      answer.delay = delay;
      for (const Bucket bucket : move.wanted)
        answer.grants.add({{bucket, ++epoch}, {{{bucket, bucket + 1, bucket, epoch}}, 1}});
      initiator.answer(0, answer);
      act();
    }
  }
  Epoch epoch = 0;
  std::uint32_t limit = 4;
  Bucket far = 1000;
  /// To a bucket far away, by uneven steps.
  Bucket go() { return far += far % 20 ? 10 : 30; }
};

TEST(FirehoseInitiator, ARiderNeedsNoGrant) {
  Played played;
  played.takes_riders = true;
  EXPECT_EQ(played.miss(1), Initiator::Need::asks);
  EXPECT_EQ(played.riders.size(), 1U);
  EXPECT_EQ(played.miss(1), Initiator::Need::waits) << "it was asked for";
  EXPECT_EQ(played.moves.size(), 1U);
  played.answer(0);
  EXPECT_EQ(played.granted_to.size(), 1U) << "the second alone waited";
  Firehose* const firehose = played.initiator.try_use(0, 1);
  ASSERT_NE(firehose, nullptr);
  played.end(*firehose);
}

// The answer to the rider came without a grant: the bucket is being registered.
TEST(FirehoseInitiator, LightOperationsDoNotWaitForARegistration) {
  Played played;
  played.takes_riders = true;
  played.miss(1);
  played.initiator.rider_ended(0, 1);
  EXPECT_EQ(played.miss(1), Initiator::Need::waits) << "a heavy one";
  Waiter light;
  light.light = true;
  EXPECT_EQ(played.initiator.need(0, 1, light).what, Initiator::Need::by_message);
  EXPECT_EQ(played.moves.size(), 1U);
  played.answer(0);
  EXPECT_EQ(played.granted_to, std::vector<Waiter*>{&played.waiter});
}

TEST(FirehoseInitiator, WhatCannotRideWaits) {
  Played played;
  EXPECT_EQ(played.miss(1), Initiator::Need::asks);
  EXPECT_TRUE(played.granted_to.empty());
  played.answer(0);
  EXPECT_EQ(played.granted_to, std::vector<Waiter*>{&played.waiter});
}

/// The buckets that each miss of a walk asks for.
std::vector<std::size_t> walk(const std::vector<Bucket>& buckets, std::size_t limit = 1'000) {
  Played played;
  played.limit = limit;
  std::vector<std::size_t> asked;
  for (const Bucket bucket : buckets) {
    if (auto* const firehose = played.initiator.try_use(0, bucket)) {
      played.end(*firehose);
      continue;
    }
    played.miss(bucket);
    asked.push_back(played.moves.back().wanted.count);
    played.answer(0);
  }
  return asked;
}

TEST(FirehoseInitiator, AWalkThroughMemoryAsksAhead) {
  EXPECT_EQ(walk({10, 11, 12, 13, 20}, 4), (std::vector<std::size_t>{1, 3, 1})) << "up to the limit of four";
}

TEST(FirehoseInitiator, AWalkByEvenStepsAsksAhead) {
  using Asked = std::vector<std::size_t>;
  EXPECT_EQ(walk({100, 108, 116, 124, 132, 140, 148, 156}), (Asked{1, 1, 1, 4, 4})) << "a column";
  EXPECT_EQ(walk({100, 99, 98, 97, 96, 95}), (Asked{1, 1, 1, 4})) << "downwards";
  EXPECT_EQ(walk({39, 29, 19, 9, 70}), (Asked{1, 1, 1, 1, 1})) << "nothing is below 0";
  EXPECT_EQ(walk({Played::kEnd - 3, Played::kEnd - 2, Played::kEnd - 1}), (Asked{1, 2}))
      << "or behind the end";
  EXPECT_EQ(walk({100, 108, 117, 127, 138}), (Asked{1, 1, 1, 1, 1}));
}

/// Moves among misses of buckets far apart.
std::size_t moves_of(Played& played, unsigned misses, std::uint32_t delay) {
  std::size_t moves = 0;
  for (unsigned i = 0; i < misses; ++i) {
    played.miss(played.go());
    moves += played.moves.size();
    played.answer(delay);
  }
  return moves;
}

TEST(FirehoseInitiator, AsksOnceItsMessagesHaveCostAsMuch) {
  Played played;
  played.initiator.operations_take(100, 300);
  EXPECT_EQ(moves_of(played, 50, 0), 50U) << "memory has room";
  moves_of(played, 1, 1800);
  EXPECT_EQ(moves_of(played, 100, 1800), 10U) << "a move costs nine messages' savings";
}

// The owner counts its registrations alone.
TEST(FirehoseInitiator, AMoveCostsTheDelayOfItsRider) {
  Played played;
  played.initiator.operations_take(100, 300, 1'900);
  moves_of(played, 1, 200);
  EXPECT_EQ(moves_of(played, 100, 200), 10U) << "nine messages' savings";
}

TEST(FirehoseInitiator, AsksAtTimesWhereMessagesAreAsFast) {
  Played played;
  played.initiator.operations_take(300, 240);
  moves_of(played, 1, 270);
  EXPECT_EQ(moves_of(played, 100, 270), 10U);
}

TEST(FirehoseInitiator, TriesFirstAndMeasuresThen) {
  Played played;
  moves_of(played, 1, 1'000'000);
  EXPECT_EQ(moves_of(played, 80, 1'000'000), 10U);
}

/// Puts a microsecond apart, where a move costs the owner one.
struct Walk {
  Played played;
  Time now = kMillisecond;
  std::vector<Bucket> victims;

  bool put(Bucket bucket) {
    played.initiator.at(now += kMicrosecond);
    if (Firehose* const firehose = played.initiator.try_use(0, bucket)) {
      played.end(*firehose);
      return true;
    }
    played.miss(bucket);
    for (const Move& move : played.moves)
      for (const BucketRef& victim : move.victims) victims.push_back(victim.bucket);
    played.answer(1'000);
    return false;
  }
};

TEST(FirehoseInitiator, TheVictimIsExpectedLatest) {
  Walk walk;
  walk.played.initiator.operations_take(1'000, 3'000);  // a move pays with its first miss
  for (const Bucket bucket : {10u, 30u, 50u, 70u}) walk.put(bucket);
  for (int turn = 0; turn < 20; ++turn)
    for (const Bucket bucket : {10u, 30u, 70u, 90u}) walk.put(bucket);
  EXPECT_EQ(walk.victims, std::vector<Bucket>{50}) << "it had been left alone";
  EXPECT_TRUE(walk.put(90));
}

TEST(FirehoseInitiator, ABucketUsedOnceDisplacesNone) {
  Walk walk;
  for (const Bucket bucket : {10u, 30u, 50u, 70u}) walk.put(bucket);
  for (Bucket bucket = 100; bucket < 1'000; bucket += 10) EXPECT_FALSE(walk.put(bucket));
  EXPECT_TRUE(walk.victims.empty());
}

// Replacing one of them would only make another one miss.
TEST(FirehoseInitiator, BucketsUsedInTurnStay) {
  Walk walk;
  int hits = 0;
  for (int turn = 0; turn < 100; ++turn)
    for (const Bucket bucket : {10u, 30u, 50u, 70u, 90u, 110u}) hits += walk.put(bucket);
  EXPECT_GT(hits, 350);
  EXPECT_LT(walk.victims.size(), 10U);
}

// Each is expected soonest at times, by chance.
TEST(FirehoseInitiator, BucketsUsedAtRandomStay) {
  Walk walk;
  walk.played.initiator.operations_take(1'000, 3'000);  // a move pays with its first miss
  std::mt19937 random(5);
  for (int put = 0; put < 4'000; ++put) walk.put(10 * (random() % 16));
  EXPECT_LT(walk.victims.size(), 12U);
}

TEST(FirehoseInitiator, ABucketUsedMoreOftenReplacesOne) {
  Walk walk;
  std::mt19937 random(5);
  for (int put = 0; put < 400; ++put) walk.put(10 * (random() % 16));
  int hits = 0;
  for (int put = 0; put < 400; ++put) hits += walk.put(put % 2 ? 300 : 10 * (random() % 16));
  EXPECT_GT(hits, 150) << "half of the puts went there";
}

}  // namespace
}  // namespace pinion
