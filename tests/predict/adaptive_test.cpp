// The adaptive predictor on streams worked out by hand: its knowledge at each moment, its estimates for
// planners, and the contents of a profile.
#include "predict/adaptive.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "predict/profile.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond, us = kMicrosecond;

class AdaptiveTest : public ::testing::Test {
 protected:
  AdaptivePredictor predictor;
  Time now = kSecond;

  /// A transfer that begins `after` the last one began.
  void use(BufferId buffer, Duration after, std::uint64_t site, Duration takes = 0) {
    now += after;
    record(buffer, now, now + takes, site);
  }
  void record(BufferId buffer, Time time, Time end, std::uint64_t site, bool continues = false) {
    Use use;
    use.buffer = buffer;
    use.site = site;
    use.time = time;
    use.end = end;
    use.lead = 100 * us;
    use.continues = continues;
    predictor.observe(use);
  }
};

TEST_F(AdaptiveTest, KnowsATurnAfterItsFirstRepetition) {
  const auto turn = [&] {
    use(0, 10 * ms, 1);
    use(1, 20 * ms, 2);
    use(2, 30 * ms, 3);
  };
  turn();
  for (BufferId b : {0u, 1u, 2u}) EXPECT_EQ(predictor.next_use(b, now), kNever) << "never reused so far";
  use(0, 10 * ms, 1);
  EXPECT_EQ(predictor.next_use(0, now), now + 60 * ms);
  EXPECT_EQ(predictor.next_use(1, now), now + 20 * ms) << "the second turn: its buffers were used once";
  EXPECT_EQ(predictor.next_use(2, now), now + 50 * ms);
}

TEST_F(AdaptiveTest, ReanchorsAtEveryEvent) {
  for (int i = 0; i < 10; ++i) {
    use(0, 10 * ms, 1);
    use(1, 20 * ms, 2);
    use(2, 30 * ms, 3);
  }
  use(0, 13 * ms, 1);
  EXPECT_EQ(predictor.next_use(1, now), now + 20 * ms);
  EXPECT_EQ(predictor.next_use(2, now), now + 50 * ms);
  EXPECT_EQ(predictor.sooner(), 0);
  use(1, 15 * ms, 2);
  EXPECT_EQ(predictor.next_use(2, now), now + 30 * ms);
  EXPECT_EQ(predictor.sooner(), 5 * ms) << "whoever has planned by it must know";
}

// A score must use only the knowledge at its moment, without later learning.
TEST_F(AdaptiveTest, SaysWhatItSaidThen) {
  for (int i = 0; i < 10; ++i) {
    use(0, 10 * ms, 1);
    use(1, 20 * ms, 2);
  }
  const Time last = now;
  use(0, 12 * ms, 1);
  Use next;
  next.buffer = 1;
  next.site = 2;
  next.lead = 100 * us;
  next.time = next.end = now + next.lead;
  EXPECT_EQ(AdaptivePredictor(predictor).observe(next).foreseen, now + 20 * ms);
  next.lead += us;
  EXPECT_EQ(AdaptivePredictor(predictor).observe(next).foreseen, last + 30 * ms) << "before it was known";
}

TEST_F(AdaptiveTest, KnowsTheLastTurnOfAnInnerLoop) {
  const auto outer = [&] {
    for (int i = 0; i < 7; ++i) use(0, i == 0 ? 100 * ms : 10 * ms, 1);
    use(1, 20 * ms, 2);
  };
  for (int i = 0; i < 5; ++i) outer();
  for (int i = 0; i < 7; ++i) {
    use(0, i == 0 ? 100 * ms : 10 * ms, 1);
    EXPECT_EQ(predictor.next_use(0, now), now + (i == 6 ? 120 : 10) * ms) << i;
    EXPECT_EQ(predictor.next_use(1, now), now + (6 - i) * 10 * ms + 20 * ms) << i;
  }
}

TEST_F(AdaptiveTest, AnotherWayThanExpectedIsPlannedAnew) {
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 5; ++j) use(0, 10 * ms, 1);
    use(1, 10 * ms, 2);
    use(2, 30 * ms, 3);
  }
  // The inner loop ends after two turns.
  use(0, 10 * ms, 1);
  use(0, 10 * ms, 1);
  use(1, 10 * ms, 2);
  EXPECT_EQ(predictor.next_use(2, now), now + 30 * ms);
  const auto& moved = predictor.moved();
  EXPECT_NE(std::find(moved.begin(), moved.end(), 2u), moved.end());
}

TEST_F(AdaptiveTest, SeveralTransfersAtOnceAreOneUse) {
  for (int i = 0; i < 8; ++i) {
    now += 50 * ms;
    record(0, now, now + ms, 1);
    for (int peer = 1; peer < 4; ++peer) record(0, now + peer * us, now + ms + peer * us, 1, true);
    record(1, now + 10 * us, now + 2 * ms, 2);
  }
  EXPECT_EQ(predictor.next_use(0, now + 5 * us), now + 50 * ms);
  EXPECT_EQ(predictor.next_use(1, now + 10 * us), now + 50 * ms + 10 * us);
}

// Completion in any order does not change the order of the calls.
TEST_F(AdaptiveTest, NonblockingCallsCompleteInAnyOrder) {
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) {
    now += 20 * ms;
    std::vector<BufferId> order = {0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), random);
    Time end = now + ms;
    for (const BufferId b : order) record(b, now + b * 2 * us, end += 10 * us, 1 + b);
    if (i < 3) continue;
    for (const BufferId b : order) {
      const Time next = predictor.next_use(b, now + b * 2 * us);
      EXPECT_NEAR(static_cast<double>(next - (now + 20 * ms + b * 2 * us)), 0, 100) << i << " " << b;
    }
  }
}

// Buffers that are reused keep their place beside buffers that are used once.
TEST_F(AdaptiveTest, OneShotBuffersAreEventsAllTheSame) {
  for (BufferId i = 0; i < 100; ++i) {
    use(0, 10 * ms, 1);
    const Time after_reused = predictor.next_use(0, now) - now;
    use(1 + i, 5 * ms, 2);
    EXPECT_EQ(predictor.next_use(1 + i, now), kNever);
    if (i < 4) continue;
    EXPECT_EQ(after_reused, 15 * ms) << i;
    EXPECT_EQ(predictor.next_use(0, now), now + 10 * ms) << i;
  }
  const Estimate once = predictor.estimate(0, now, ms);
  EXPECT_GT(once.reuse, 0.9);
}

// ---- sureness ----

TEST_F(AdaptiveTest, IsSureWhereNothingVaries) {
  for (int i = 0; i < 40; ++i) use(0, 10 * ms, 1);
  const Estimate estimate = predictor.estimate(0, now, ms);
  EXPECT_EQ(estimate.time, now + 10 * ms);
  EXPECT_EQ(estimate.early, estimate.time);
  EXPECT_LT(estimate.risk, 0.02);
}

// Between uses of ever new sites no chain leads to it: its own past alone speaks.
TEST_F(AdaptiveTest, AThirdUseIsNotCountedOnAFourthIs) {
  const double chances[] = {0, 0, 0.5, 2.0 / 3, 0.75};
  for (unsigned reuses = 0; reuses < 5; ++reuses) {
    use(0, 10 * ms, 100 + reuses);
    use(1 + reuses, 10 * ms, 200 + reuses);
    EXPECT_DOUBLE_EQ(predictor.estimate(0, now, ms).reuse, chances[reuses]) << reuses;
  }
}

TEST_F(AdaptiveTest, TheMarginIsWorthItsPrice) {
  std::mt19937 random(1);
  std::uniform_int_distribution<Duration> noise(-ms, ms);
  for (int i = 0; i < 200; ++i) use(0, 20 * ms + noise(random), 1);
  Time before = predictor.estimate(0, now, 0).early;
  EXPECT_EQ(before, kNever) << "where being late costs nothing, nothing is held";
  double risk = 1;
  for (const Duration worth : {ms, 3 * ms, 10 * ms, 100 * ms, kSecond}) {
    const Estimate estimate = predictor.estimate(0, now, worth);
    EXPECT_LE(estimate.early, before);
    EXPECT_LE(estimate.risk, risk);
    before = estimate.early;
    risk = estimate.risk;
  }
  EXPECT_LT(risk, 0.01);
  // Being ready 1 ms sooner covers the noise: with a use every 20 ms it is worth that to avoid one wait
  // of 10.
  const Estimate fair = predictor.estimate(0, now, 10 * ms);
  EXPECT_NEAR(static_cast<double>(fair.time - fair.early), 1.0 * ms, 0.3 * ms);
}

// Another buffer came 1 ms early, once: that is one error, not as many as would make one sure.
TEST_F(AdaptiveTest, OneErrorOfAnotherBufferIsOneError) {
  for (int i = 0; i < 2; ++i) {
    use(0, 10 * ms, 1);
    use(1, 10 * ms, 2);
  }
  use(0, 9 * ms, 1);
  const Estimate estimate = predictor.estimate(1, now, 10 * ms);
  EXPECT_GT(estimate.risk, 0.1);
}

// ---- bounds ----

TEST_F(AdaptiveTest, MemoryIsBounded) {
  std::mt19937 random(1);
  for (int i = 0; i < 300000; ++i) {
    use(static_cast<BufferId>(random() % 1000), 10 * us + static_cast<Duration>(random() % 1000),
        random() % 5000);
    if (i % 7 == 0) predictor.forget(static_cast<BufferId>(random() % 1000));
  }
  EXPECT_LE(predictor.contexts(), 2 * EventModel::kMostNodes);
}

// ---- profiles ----

class ProfileTest : public ::testing::Test {
 protected:
  /// Turns of a nested loop; buffers have other numbers in each run.
  static void run(AdaptivePredictor& predictor, Time& now, int turns, BufferId first, Duration scale = ms) {
    for (int i = 0; i < turns; ++i) {
      for (int inner = 0; inner < 4; ++inner) use(predictor, first + 1, now += 5 * scale, 11);
      use(predictor, first, now += 30 * scale, 12);
    }
  }
  static void use(AdaptivePredictor& predictor, BufferId buffer, Time time, std::uint64_t site) {
    Use use;
    use.buffer = buffer;
    use.site = site;
    use.time = use.end = time;
    use.lead = 100 * us;
    predictor.observe(use);
  }
  static std::string learnt() {
    AdaptivePredictor predictor;
    Time now = kSecond;
    run(predictor, now, 20, 0);
    return predictor.profile();
  }
};

TEST_F(ProfileTest, ABufferUsedOnceIsKnown) {
  AdaptivePredictor predictor;
  ASSERT_FALSE(predictor.load_profile(learnt()));
  Time now = 77 * kSecond;
  // Another run: another time, other numbers of buffers.
  use(predictor, 8, now += 5 * ms, 11);
  EXPECT_EQ(predictor.next_use(8, now), now + 5 * ms) << "used once in this run";
  use(predictor, 9, now += 30 * ms, 12);
  for (int i = 0; i < 4; ++i) use(predictor, 8, now += 5 * ms, 11);
  EXPECT_EQ(predictor.next_use(8, now), now + 35 * ms) << "the inner loop has four turns";
  EXPECT_EQ(predictor.next_use(9, now), now + 30 * ms) << "used once in this run";
}

// The walk to one buffer's next use passes another's before that has come for the first time.
TEST_F(ProfileTest, ABufferIsExpectedWhereItWasPassed) {
  const auto turn = [](AdaptivePredictor& predictor, BufferId first, Time& now) {
    use(predictor, first, now += 10 * ms, 21);
    use(predictor, first + 1, now += 5 * ms, 22);
    use(predictor, first + 1, now += 5 * ms, 23);
  };
  AdaptivePredictor before, predictor;
  Time now = kSecond;
  for (int i = 0; i < 20; ++i) turn(before, 0, now);
  ASSERT_FALSE(predictor.load_profile(before.profile()));
  now = 77 * kSecond;
  use(predictor, 5, now, 21);
  EXPECT_EQ(predictor.next_use(5, now), now + 20 * ms);
  use(predictor, 6, now += 5 * ms, 22);
  EXPECT_EQ(predictor.next_use(6, now), now + 5 * ms);
  use(predictor, 6, now += 5 * ms, 23);
  EXPECT_EQ(predictor.next_use(6, now), now + 15 * ms);
}

TEST_F(ProfileTest, AStaleOneDoesNoHarm) {
  // The second run has the same sites and a problem three times as large: after two turns the profile makes
  // no difference.
  AdaptivePredictor with, without;
  ASSERT_FALSE(with.load_profile(learnt()));
  Time a = kSecond, b = kSecond;
  run(with, a, 3, 0, 3 * ms);
  run(without, b, 3, 0, 3 * ms);
  int worse = 0;
  for (int i = 0; i < 50; ++i) {
    const Time next_with = with.next_use(0, a), next_without = without.next_use(0, b);
    const Time last_a = a, last_b = b;
    run(with, a, 1, 0, 3 * ms);
    run(without, b, 1, 0, 3 * ms);
    const auto off = [](Time predicted, Time last) { return std::abs(predicted - (last + 150 * ms)); };
    worse += off(next_with, last_a) > off(next_without, last_b) + ms;
  }
  EXPECT_LE(worse, 2);
}

TEST_F(ProfileTest, OneOfAnotherProgramIsNeverAsked) {
  AdaptivePredictor predictor;
  ASSERT_FALSE(predictor.load_profile(learnt()));
  Time now = kSecond;
  for (int i = 0; i < 20; ++i) use(predictor, 3, now += 8 * ms, 99);
  EXPECT_EQ(predictor.next_use(3, now), now + 8 * ms);
}

TEST_F(ProfileTest, WhatIsNotWholeIsAnError) {
  const std::string good = learnt();
  ASSERT_GT(good.size(), 1000u);
  Profile profile;
  EXPECT_FALSE(profile.from_bytes(good));
  EXPECT_FALSE(profile.transitions.empty());
  EXPECT_FALSE(profile.reuses.empty());

  for (std::size_t size = 0; size < good.size(); size += size < 100 ? 1 : 37)
    EXPECT_TRUE(profile.from_bytes(good.substr(0, size))) << size;
  EXPECT_TRUE(profile.from_bytes(good + "x"));
  for (std::size_t at = 0; at < good.size(); at += at < 100 ? 1 : 29) {
    if (at >= 12 && at < 16) continue;  // reserved
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    EXPECT_TRUE(profile.from_bytes(bad)) << at;
    EXPECT_TRUE(profile.transitions.empty());
  }
}

TEST_F(ProfileTest, AnotherFormatIsAnErrorThatNamesBoth) {
  for (const auto& [format, writer] : {std::pair{'\2', "format 2, written by a newer Pinion"},
                                       std::pair{'\0', "format 0, written by an older Pinion"}}) {
    std::string other = learnt();
    other[8] = format;
    AdaptivePredictor predictor;
    const Error error = predictor.load_profile(other);
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error.message).find(writer), std::string::npos) << error.message;
    EXPECT_NE(std::string(error.message).find("reads format 1"), std::string::npos) << error.message;
  }
}

TEST_F(ProfileTest, NonsenseWithAChecksumIsAnError) {
  Profile profile;
  profile.transitions.push_back({1, 2, 3, INT64_MIN, 0.5});
  EXPECT_TRUE(Profile().from_bytes(profile.to_bytes()));
  profile.transitions.clear();
  profile.reuses.push_back({1, -5});
  EXPECT_TRUE(Profile().from_bytes(profile.to_bytes()));
}

}  // namespace
}  // namespace pinion
