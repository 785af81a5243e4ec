// The registration queue, deadlines, recent largest values.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "fixture.h"

namespace pinion::helper_test {
namespace {

// ---- the registration queue ----

std::vector<Time> deadlines(const RegistrationQueue& queue) {
  std::vector<Time> all;
  queue.for_each([&](const auto& item) { all.push_back(item.deadline); });
  return all;
}

TEST(RegistrationQueue, FarItemsKeepTheirDeadlines) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(2, 1010, 10);
  queue.insert(3, 990, 10);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{990, 1000, 1010}));
}

TEST(RegistrationQueue, LaterItemStandsAndEarlierOnesMakeRoom) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(2, 1000, 10);  // served before: by 990
  queue.insert(3, 995, 10);   // between both there is no room: by 980
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{980, 990, 1000}));
  queue.insert(4, 1005, 20);  // its service begins at 985: all before move, 3 by 5 less 20
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{965, 975, 985, 1005}));
}

// A short registration right before a long one: the long one must fit in between.
TEST(RegistrationQueue, GapIsWhatTheLaterItemTakes) {
  RegistrationQueue queue;
  queue.insert(1, 100, 1);
  queue.insert(2, 101, 50);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{51, 101}));
  RegistrationQueue other;
  other.insert(2, 101, 50);
  other.insert(1, 100, 1);
  EXPECT_EQ(deadlines(other), (std::vector<Time>{51, 101}));
}

TEST(RegistrationQueue, Room) {
  RegistrationQueue queue;
  EXPECT_EQ(queue.room(1000, 10), 1000);
  queue.insert(1, 1000, 10);
  EXPECT_EQ(queue.room(1020, 10), 1020);
  EXPECT_EQ(queue.room(1010, 10), 1010);
  EXPECT_EQ(queue.room(1009, 10), 999);  // the first must be served right before
  EXPECT_EQ(queue.room(1000, 10), 990);  // before it
  EXPECT_EQ(queue.room(500, 10), 500);
}

TEST(RegistrationQueue, InsertAgainMoves) {
  RegistrationQueue queue;
  queue.insert(1, 1000, 10);
  queue.insert(1, 2000, 10);
  EXPECT_EQ(deadlines(queue), (std::vector<Time>{2000}));
  queue.remove(1);
  EXPECT_TRUE(queue.empty());
  EXPECT_FALSE(queue.contains(1));
  queue.remove(1);
}

TEST(RegistrationQueue, RandomInsertsAndRemovesKeepOrderAndSpacing) {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    RegistrationQueue queue;
    std::map<BufferId, Time> asked;
    for (int i = 0; i < 1000; ++i) {
      const auto buffer = static_cast<BufferId>(random() % 50);
      if (random() % 3 == 0) {
        queue.remove(buffer);
        asked.erase(buffer);
      } else {
        const Time deadline = 100000 + static_cast<Time>(random() % 3000);
        const Duration service = 1 + static_cast<Duration>(random() % 100);
        queue.remove(buffer);
        const Time room = queue.room(deadline, service);
        queue.insert(buffer, deadline, service);
        asked[buffer] = deadline;
        queue.for_each([&](const auto& item) {
          if (item.buffer == buffer) {
            EXPECT_LE(room, item.deadline);
          }
        });
      }
      ASSERT_EQ(queue.size(), asked.size());
      Time before = 0;
      queue.for_each([&](const auto& item) {
        ASSERT_GE(item.deadline - item.service, before);
        ASSERT_LE(item.deadline, asked.at(item.buffer));
        before = item.deadline;
      });
    }
  }
}

// ---- deadlines ----

TEST(Deadlines, TheEarliestIsFirstWhateverMoves) {
  std::mt19937 random(1);
  Deadlines deadlines;
  std::map<BufferId, Time> times;
  for (int i = 0; i < 5000; ++i) {
    const auto buffer = static_cast<BufferId>(random() % 60);
    const Time time = random() % 4 == 0 ? kNever : static_cast<Time>(random() % 100);  // many are equal
    deadlines.set(buffer, time);
    if (time == kNever)
      times.erase(buffer);
    else
      times[buffer] = time;
    std::vector<Deadlines::Item> expected;
    for (const auto& [id, at] : times) expected.push_back({at, id});
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(deadlines.in_order(), expected);
    ASSERT_EQ(deadlines.empty(), expected.empty());
    if (!expected.empty()) {
      ASSERT_EQ(deadlines.first(), expected.front());
    }
  }
}

TEST(RecentLargest, IsTheNthOfTheLast32) {
  std::mt19937 random(1);
  RecentLargest<Duration, 1> largest{7};
  RecentLargest<Duration, 3> third{7};
  std::deque<Duration> recent(32, 7);
  for (int i = 0; i < 2000; ++i) {
    const auto value = static_cast<Duration>(random() % 40);
    largest.observe(value);
    third.observe(value);
    recent.push_back(value);
    recent.pop_front();
    std::vector<Duration> sorted(recent.begin(), recent.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    ASSERT_EQ(largest.value(), sorted[0]);
    ASSERT_EQ(third.value(), sorted[2]);
  }
}

}  // namespace
}  // namespace pinion::helper_test
