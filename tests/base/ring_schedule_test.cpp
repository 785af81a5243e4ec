// The ring and the spin lock under chosen interleavings.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "base/ring.h"
#include "base/spin_lock.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

TEST(RingSchedule, LosesDuplicatesAndReordersNothing) {
  struct State {
    Ring<int, 2, ScheduledAtomics> ring;
    std::vector<int> pushed, popped;
  };
  const auto explored = Scheduler::explore({.preemptions = 4}, [] {
    auto state = std::make_shared<State>();
    return test::Scenario{{[state] {
                             for (int i = 1; i <= 5; ++i)
                               if (state->ring.push(i) != 0) state->pushed.push_back(i);
                           },
                           [state] {
                             for (int i = 0; i < 4; ++i)
                               if (int value = 0; state->ring.pop(value)) state->popped.push_back(value);
                           }},
                          [state] {
                            EXPECT_EQ(state->ring.size(), state->pushed.size() - state->popped.size());
                            EXPECT_LE(state->ring.size(), state->ring.capacity());
                            EXPECT_EQ(state->ring.dropped(), 5 - state->pushed.size());
                            for (int value = 0; state->ring.pop(value);) state->popped.push_back(value);
                            EXPECT_EQ(state->popped, state->pushed);
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

TEST(Ring, RefusesAndCountsWhatDoesNotFit) {
  Ring<int, 4> ring;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ring.push(i), static_cast<std::size_t>(i + 1));
  EXPECT_EQ(ring.push(4), 0u);
  EXPECT_TRUE(ring.refuses());
  EXPECT_EQ(ring.dropped(), 2u);
  int value = -1;
  ASSERT_TRUE(ring.pop(value));
  EXPECT_EQ(value, 0);
  EXPECT_FALSE(ring.refuses());
  EXPECT_EQ(ring.push(5), 4u);
  for (int expected : {1, 2, 3, 5}) {
    ASSERT_TRUE(ring.pop(value));
    EXPECT_EQ(value, expected);
  }
  EXPECT_FALSE(ring.pop(value));
}

// push()'s result decides whether a system call wakes the consumer.
TEST(Ring, ReportsHalfFullOnlyWhenItIs) {
  Ring<int, 64> ring;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_LT(ring.push(i), 32u);
    int value = -1;
    ASSERT_TRUE(ring.pop(value));
    ASSERT_EQ(value, i);
  }
  for (std::size_t i = 1; i <= 64; ++i) {
    const std::size_t fill = ring.push(0);
    if (i >= 32) {
      ASSERT_EQ(fill, i);
    }
  }
}

TEST(SpinLockSchedule, ExcludesEachOther) {
  struct State {
    BasicSpinLock<ScheduledAtomics> lock;
    ScheduledAtomics::Atomic<int> inside{0};
    ScheduledAtomics::Atomic<int> turns{0};
  };
  for (int threads : {2, 3}) {
    const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 3000}, [threads] {
      auto state = std::make_shared<State>();
      const auto body = [state] {
        for (int i = 0; i < 2; ++i) {
          state->lock.lock();
          EXPECT_EQ(state->inside.fetch_add(1), 0);
          state->turns.store(state->turns.load() + 1);
          state->inside.fetch_sub(1);
          state->lock.unlock();
        }
      };
      return test::Scenario{std::vector<std::function<void()>>(static_cast<std::size_t>(threads), body),
                            [=] { EXPECT_EQ(state->turns.load(), 2 * threads); }};
    });
    EXPECT_GT(explored.schedules, 100u);
  }
}

}  // namespace
}  // namespace pinion
