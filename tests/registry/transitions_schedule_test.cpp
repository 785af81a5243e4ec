// The end of a registration and threads that wait for it, under chosen interleavings.
#include <gtest/gtest.h>

#include <memory>

#include "registry/transitions.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

// The kernel compares the number as it puts the waiter to sleep. A waiter that it puts to sleep has been
// counted before the end of the registration.
TEST(TransitionsSchedule, NoWaiterIsForgotten) {
  struct State {
    BasicTransitions<ScheduledAtomics> transitions;
    bool slept[2] = {false, false};
    bool woke = false;
  };
  const auto explored = Scheduler::explore({.preemptions = 4}, [] {
    auto state = std::make_shared<State>();
    const auto wait = [state](int who) {
      state->transitions.begin_wait();
      if (state->transitions.load() == 0) {
        state->slept[who] = true;
        return;  // in the kernel
      }
      state->transitions.end_wait();
    };
    return test::Scenario{
        {[wait] { wait(0); }, [wait] { wait(1); }, [state] { state->woke = state->transitions.ended(); }},
        [state] { EXPECT_TRUE(state->woke || (!state->slept[0] && !state->slept[1])); }};
  });
  EXPECT_TRUE(explored.complete);
  EXPECT_GT(explored.schedules, 20u);
}

}  // namespace
}  // namespace pinion
