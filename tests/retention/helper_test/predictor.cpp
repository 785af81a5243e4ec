// Prediction by shortest intervals and context windows, and its score.

#include <gtest/gtest.h>

#include "fixture.h"
#include "predict/paper_predictors.h"

namespace pinion::helper_test {
namespace {

// ---- the predictor ----

constexpr Time ms(std::int64_t n) { return n * kMillisecond; }

void observe(Predictor& predictor, BufferId buffer, Time time, std::uint64_t site = 1, Address address = 0) {
  Use use;
  use.buffer = buffer;
  use.site = site;
  use.address = address;
  use.kind = CallKind::send;
  use.time = use.end = time;
  predictor.observe(use);
}

TEST(ShortestPredictor, LastUsePlusShortestInterval) {
  ShortestPredictor predictor(0);
  observe(predictor, 0, ms(0));
  EXPECT_EQ(predictor.next_use(0, ms(0)), kNever);
  observe(predictor, 0, ms(100));
  EXPECT_EQ(predictor.next_use(0, ms(100)), ms(200));
  observe(predictor, 0, ms(190));
  EXPECT_EQ(predictor.next_use(0, ms(190)), ms(280));
  observe(predictor, 0, ms(300));
  EXPECT_EQ(predictor.next_use(0, ms(300)), ms(390));
  EXPECT_EQ(predictor.next_use(0, ms(389)), ms(390));
  EXPECT_EQ(predictor.next_use(0, ms(390)), kNever);
  predictor.forget(0);
  EXPECT_EQ(predictor.next_use(0, 0), kNever);
  EXPECT_EQ(predictor.entries(), 0u);
}

// "We use the shortest observed time": one short interval stays for good.
TEST(ShortestPredictor, OneShortIntervalPoisonsItForGood) {
  ShortestPredictor predictor(0);
  Time time = 0;
  for (int i = 0; i < 10; ++i) observe(predictor, 0, time += ms(100));
  observe(predictor, 0, time += ms(1));
  for (int i = 0; i < 1000; ++i) observe(predictor, 0, time += ms(100));
  EXPECT_EQ(predictor.next_use(0, time), time + ms(1));
}

// Messages of two sizes from one address and one site, in turn.
TEST(ShortestPredictor, SizesInTurnAreLearntEach) {
  ShortestPredictor predictor(0);
  for (int i = 0; i < 6; ++i) observe(predictor, i % 2 ? 1 : 0, ms(10 * i), 1, 4096);
  EXPECT_EQ(predictor.next_use(0, ms(50)), ms(60));
  EXPECT_EQ(predictor.next_use(1, ms(50)), ms(70));
}

TEST(ShortestPredictor, UsesOutOfOrderTeachNothing) {
  ShortestPredictor predictor(0);
  observe(predictor, 0, ms(0));
  observe(predictor, 0, ms(100));
  observe(predictor, 0, ms(99));
  EXPECT_EQ(predictor.next_use(0, ms(100)), ms(200));
}

// The paper's Figure 4, three turns of inner loop 1 and two of inner loop 2, every 100 ms:
//   buf1 at 0, 10, 20, buf2 at 30, 37; buf1 at 100, 110, 120, buf2 at 130, 137; ...
class NestedLoops : public ::testing::TestWithParam<unsigned> {
 protected:
  ShortestPredictor predictor{GetParam()};
  static constexpr BufferId kBuf1 = 0, kBuf2 = 1;

  /// All uses before `end`, from `begin` on.
  void run(Time begin, Time end) {
    for (Time outer = 0; outer < end; outer += ms(100)) {
      for (const auto& [at, buffer] :
           {std::pair{0, kBuf1}, {10, kBuf1}, {20, kBuf1}, {30, kBuf2}, {37, kBuf2}}) {
        const Time time = outer + ms(at);
        if (time >= begin && time < end) observe(predictor, buffer, time, 1 + buffer, 4096 * (1 + buffer));
      }
    }
  }
  Time after(std::int64_t at) {
    run(seen_, ms(at) + 1);
    seen_ = ms(at) + 1;
    return predictor.next_use(kBuf1, ms(at));
  }
  Time seen_ = 0;
};
using Window0 = NestedLoops;
using Window1 = NestedLoops;
using Window2 = NestedLoops;

// One period for all: that of the loop. The first turn of the next outer iteration is announced 70 ms early.
TEST_P(Window0, HasOnePeriodForAllTurns) {
  EXPECT_EQ(after(500), ms(510));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(530));
  EXPECT_EQ(predictor.entries(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window0, ::testing::Values(0u));

// First turns (after buf2) every 100 ms, others (after buf1) every 10. On the first turn, the others' last
// prediction (420 + 10) is past: the second turn is not predicted. On the last one, they predict one more.
// Entries: buf1 after nothing, buf2, buf1; buf2 after buf1, buf2.
TEST_P(Window1, TellsFirstTurnsFromOthers) {
  EXPECT_EQ(after(500), ms(600));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(530));
  EXPECT_EQ(predictor.entries(), 5u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window1, ::testing::Values(1u));

// Each of the three turns has a context of its own, with a period of 100 ms: all predictions are right.
// Entries: buf1 after {}, {buf1}, {buf1, buf1}, {buf2, buf2}, {buf1, buf2}; buf2 after {buf1, buf1}, {buf2,
// buf1}.
TEST_P(Window2, TellsThreeTurnsApart) {
  EXPECT_EQ(after(500), ms(510));
  EXPECT_EQ(after(510), ms(520));
  EXPECT_EQ(after(520), ms(600));
  EXPECT_EQ(predictor.entries(), 7u);
}
INSTANTIATE_TEST_SUITE_P(Length, Window2, ::testing::Values(2u));

TEST(ContextWindow, ThreadsHaveContextsOfTheirOwn) {
  ContextWindow one(2), two(2);
  const Use a{0, 1, 4096, CallKind::send, 0, 0}, b{1, 2, 8192, CallKind::receive, 0, 0};
  Use other = b;
  other.thread = 7;
  one.enter(a);
  one.enter(other);  // does not come between
  two.enter(a);
  EXPECT_EQ(one.enter(b), two.enter(b));
}

// ---- the score ----

TEST_F(RetentionTest, ScoreByHand) {
  // At 1000 ms: no prediction, wrong. At 2000: exact. At 2990: predicted 3000, 10 of 990 ms off, 1.01 %. At
  // 4000: predicted 2990 + 990 = 3980, 20 of 1010 ms off, 1.98 %. At 6000: predicted 4990, half of 2000 ms
  // off.
  for (const int at : {0, 1000, 2000, 2990, 4000, 6000}) {
    use(virtual_pages(0, 4), kStart + ms(at));
    settle(kStart + ms(at));
  }
  const PredictionScore& score = retention.score();
  EXPECT_EQ(score.reuses, 5u);
  EXPECT_EQ(score.within_0_5, 1u);
  EXPECT_EQ(score.within_5, 3u);
  EXPECT_EQ(score.at_release_within_0_5, 1u);
  EXPECT_EQ(score.at_release_within_5, 3u);
  EXPECT_EQ(score.late, 5u);  // nobody registered ahead
}

TEST_F(RetentionTest, ScoreHasTwoHorizons) {
  HelperRetention judged(domain, told, costs, {});
  // At release it predicts 4 % too early, later exactly; then the other way round.
  told.next = kStart + ms(96);
  use(judged, virtual_pages(0, 4), kStart);
  told.next = kStart + ms(100);
  use(judged, virtual_pages(0, 4), kStart + ms(100));
  EXPECT_EQ(judged.score().at_release_within_0_5, 0u);
  EXPECT_EQ(judged.score().at_release_within_5, 1u);
  EXPECT_EQ(judged.score().within_0_5, 1u);
  EXPECT_EQ(judged.score().within_5, 1u);
  told.next = kStart + ms(400);
  use(judged, virtual_pages(0, 4), kStart + ms(200));
  told.next = kNever;
  use(judged, virtual_pages(0, 4), kStart + ms(400));
  EXPECT_EQ(judged.score().reuses, 3u);
  EXPECT_EQ(judged.score().at_release_within_0_5, 1u);
  EXPECT_EQ(judged.score().within_0_5, 1u);
}

}  // namespace
}  // namespace pinion::helper_test
