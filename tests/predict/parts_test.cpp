// The parts that the adaptive predictor is made of.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "predict/event_model.h"

namespace pinion {
namespace {

constexpr Duration ms = kMillisecond;

// ---- recent values ----

TEST(RecentValues, KeepsTheLatestInOrder) {
  RecentValues values;
  std::deque<float> kept;
  std::mt19937 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto value = static_cast<float>(random() % 20);
    values.add(value);
    kept.push_back(value);
    if (kept.size() > RecentValues::kMost) kept.pop_front();
    std::vector<float> sorted(kept.begin(), kept.end());
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(std::vector<float>(values.sorted().begin(), values.sorted().end()), sorted);
  }
}

// ---- intervals ----

double off_by(const Interval& interval, Duration value) {
  return std::abs(static_cast<double>(interval.expected() - value)) / static_cast<double>(value);
}

TEST(Interval, OneObservationIsBelieved) {
  Interval interval;
  EXPECT_FALSE(interval.known());
  interval.learn(7 * ms);
  EXPECT_LT(off_by(interval, 7 * ms), 1e-6);
}

TEST(Interval, NoiseAveragesOut) {
  Interval interval;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.99, 1.01);
  for (int i = 0; i < 64; ++i) interval.learn(std::llround(noise(random) * 10 * ms));
  EXPECT_LT(off_by(interval, 10 * ms), 0.002);
}

TEST(Interval, OutliersAreNotLearnt) {
  Interval interval;
  for (int i = 0; i < 40; ++i) {
    interval.learn(i % 10 == 5 ? 90 * ms : 10 * ms);
    EXPECT_LT(off_by(interval, 10 * ms), 1e-6) << i;
  }
}

TEST(Interval, AChangeIsLearntWithinFourTurns) {
  Interval interval;
  for (int i = 0; i < 100; ++i) interval.learn(10 * ms);
  for (int i = 0; i < 4; ++i) interval.learn(4 * ms);
  EXPECT_LT(off_by(interval, 4 * ms), 1e-6);
}

TEST(Interval, OfTwoLengthsOneIsBelieved) {
  Interval interval;
  std::mt19937 random(1);
  int right = 0;
  for (int i = 0; i < 500; ++i) {
    const Duration value = (random() % 3 == 0 ? 20 : 10) * ms;
    if (i > 20) right += off_by(interval, value) < 0.005;
    interval.learn(value);
  }
  EXPECT_GT(right, 280) << "the mean of both would never be right";
}

// ---- the table ----

struct Entry {
  int value = 0;
};

TEST(ContextTable, FindsWhatItHolds) {
  ContextTable<Entry> table(1 << 12);
  for (std::uint64_t key = 1; key <= 1000; ++key) table.insert(key).value = static_cast<int>(key);
  int found = 0;
  for (std::uint64_t key = 1; key <= 1000; ++key) {
    const Entry* entry = table.find(key);
    if (!entry) continue;
    EXPECT_EQ(entry->value, static_cast<int>(key));
    ++found;
  }
  EXPECT_GT(found, 950) << "few sets are full while the table is half empty";
  int listed = 0;
  table.for_each([&](std::uint64_t key, const Entry& entry) {
    EXPECT_EQ(entry.value, static_cast<int>(key));
    ++listed;
  });
  EXPECT_EQ(listed, found);
}

TEST(ContextTable, ForgetsWhatWasUsedLongestAgo) {
  ContextTable<Entry> table(256);
  for (std::uint64_t key = 1; key <= 100000; ++key) {
    table.insert(key);
    ASSERT_TRUE(table.find(key));
    table.find(1);  // always in use
    ASSERT_LE(table.size(), 256u);
  }
  EXPECT_TRUE(table.find(1));
  EXPECT_FALSE(table.find(2));
}

// ---- the model ----

TEST(EventModel, TheContextThatKnowsSpeaks) {
  // A a a b, again and again: only the position in the run predicts the event after `a`.
  EventModel model;
  StreamPosition position;
  const EventName names[] = {{1, 10}, {1, 10}, {1, 10}, {2, 20}};
  position.advance(names[0]);
  int wrong = 0;
  for (int i = 1; i < 400; ++i) {
    const EventName& name = names[i % 4];
    EventModel::Next next;
    wrong += i >= 40 && (!model.predict(position, next) || !(next.name == name));
    model.learn(position.contexts(), {name, 0, false}, i % 4 == 3 ? 5 * ms : 10 * ms);
    position.advance(name);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(LookAhead, EventsThatCameMoveWhatIsToCome) {
  EventModel model;
  StreamPosition position;
  const EventName names[] = {{1, 10}, {2, 20}, {3, 30}};
  position.advance(names[0]);
  for (int i = 1; i < 30; ++i) {
    model.learn(position.contexts(), {names[i % 3], static_cast<BufferId>(i % 3), false}, 10 * ms);
    position.advance(names[i % 3]);
  }
  LookAhead ahead;
  ahead.restart(position, kSecond);  // behind the third of a turn
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(ahead.extend(model));
  EXPECT_EQ(ahead.base() + ahead[ahead.head()].at, kSecond + 10 * ms);

  // The second comes while the first is under way: it is recognised as the expected one, rather than that of
  // the next turn.
  EXPECT_EQ(ahead.expected(names[1], false, kSecond + 8 * ms), LookAhead::kNone)
      << "the first is not due yet";
  const std::uint64_t second = ahead.expected(names[1], false, kSecond + 21 * ms);
  ASSERT_EQ(second, ahead.head() + 1);
  EXPECT_EQ(ahead.anchor(second, kSecond + 21 * ms), 0) << "later than expected";
  EXPECT_EQ(ahead.base() + ahead[ahead.head()].at, kSecond + 31 * ms);
  EXPECT_EQ(ahead.overdue(names[0], false), second - 1);
  EXPECT_EQ(ahead.anchor(ahead.head(), kSecond + 27 * ms), 4 * ms) << "sooner than expected";
}

}  // namespace
}  // namespace pinion
