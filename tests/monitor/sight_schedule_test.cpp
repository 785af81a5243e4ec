// Sight (monitor/sight.h) in every order of its steps: a registration from before or during its loss grants
// no lease when it is back.
#include <gtest/gtest.h>

#include <memory>

#include "monitor/sight.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

struct State {
  BasicSight<ScheduledAtomics> sight;
  ScheduledAtomics::Atomic<bool> indexed{false};   ///< the region can be found
  ScheduledAtomics::Atomic<bool> doomed{false};    ///< it was found
  ScheduledAtomics::Atomic<bool> replaced{false};  ///< the memory has changed without an event
  bool registered_old_memory = false;
  bool believed = false;

  void register_memory() {
    const auto look = sight.look();
    indexed.store(true);
    const bool seen = sight.unbroken(look);
    registered_old_memory = !replaced.load();
    believed = seen;
  }
  void lose_sight() {
    sight.lost();
    if (indexed.load()) doomed.store(true);
  }
};

TEST(SightSchedule, NothingRegisteredBlindlyIsBelieved) {
  const auto explored = Scheduler::explore({.preemptions = 4, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    const auto overwriting = [state] {
      state->lose_sight();
      state->replaced.store(true);
      state->sight.regained(state->sight.look());
    };
    return test::Scenario{{[state] { state->register_memory(); }, overwriting}, [state] {
                            const bool believed = state->believed && !state->doomed.load();
                            EXPECT_FALSE(believed && state->registered_old_memory);
                            EXPECT_FALSE(state->sight.blind());
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

// Verified by one thread while another library begins to overwrite once more.
TEST(SightSchedule, IsNotRegainedPastAnotherLoss) {
  const auto explored = Scheduler::explore({.preemptions = 4, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    state->sight.lost();
    auto exposed = std::make_shared<ScheduledAtomics::Atomic<bool>>(false);
    auto overwritten = std::make_shared<ScheduledAtomics::Atomic<bool>>(false);
    const auto verifying = [state, exposed, overwritten] {
      const auto look = state->sight.look();
      if (!exposed->load() && !overwritten->load()) state->sight.regained(look);
    };
    const auto overwriting = [state, exposed, overwritten] {
      exposed->store(true);
      state->sight.lost();
      overwritten->store(true);
      exposed->store(false);
    };
    return test::Scenario{{verifying, overwriting}, [state] { EXPECT_TRUE(state->sight.blind()); }};
  });
  EXPECT_TRUE(explored.complete);
}

}  // namespace
}  // namespace pinion
