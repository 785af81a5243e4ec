// The array of sinks (monitor/memory_sink.h) in every order of its steps: hooks walk it while sinks come and
// go.
#include <gtest/gtest.h>

#include <memory>

#include "monitor/brackets.h"
#include "monitor/memory_sink.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;
using Flag = ScheduledAtomics::Atomic<bool>;

constexpr Range kMemory{0x10000, 0x20000};

struct Sink {
  int visits = 0;  ///< of one walking thread
};

TEST(SinksSchedule, WalksMeetASinkFromItsAdditionToItsRemoval) {
  struct State {
    BasicSinkArray<Sink, ScheduledAtomics, 3> sinks;
    Sink old, passing;
    Flag added{false}, leaving{false}, gone{false};
  };
  const auto explored = Scheduler::explore({.preemptions = 4, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    state->sinks.add(state->old);
    const auto walking = [state] {
      for (int walk = 1; walk <= 2; ++walk) {
        state->passing.visits = 0;
        const bool was_added = state->added.load(), was_gone = state->gone.load();
        state->sinks.for_each([](Sink& sink) { ++sink.visits; });
        if (was_added && !state->leaving.load()) {
          EXPECT_EQ(state->passing.visits, 1);
        }
        if (was_gone) {
          EXPECT_EQ(state->passing.visits, 0);
        }
        EXPECT_EQ(state->old.visits, walk);
      }
    };
    const auto passing = [state] {
      EXPECT_TRUE(state->sinks.add(state->passing));
      state->added.store(true);
      state->leaving.store(true);
      state->sinks.remove(state->passing);
      state->gone.store(true);
    };
    return test::Scenario{{walking, passing}};
  });
  EXPECT_TRUE(explored.complete);
}

TEST(SinksSchedule, SinksThatComeTogetherAllFindASlot) {
  struct State {
    BasicSinkArray<Sink, ScheduledAtomics, 2> sinks;
    Sink a, b;
  };
  const auto explored = Scheduler::explore({.preemptions = 4, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    const auto coming = [state](Sink& sink) {
      return [state, &sink] {
        EXPECT_TRUE(state->sinks.add(sink));
        state->sinks.remove(sink);
        EXPECT_TRUE(state->sinks.add(sink));
      };
    };
    return test::Scenario{{coming(state->a), coming(state->b)}, [state] {
                            state->sinks.for_each([](Sink& sink) { ++sink.visits; });
                            EXPECT_EQ(state->a.visits, 1);
                            EXPECT_EQ(state->b.visits, 1);
                            Sink third;
                            EXPECT_FALSE(state->sinks.add(third));
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

// A sink that comes while memory changes: it has the event, or finds its bracket open.
TEST(SinksSchedule, NoRegistrationOfANewSinkOutlivesItsMemory) {
  struct Registering {
    Flag registered{false}, doomed{false};
  };
  struct State {
    BasicBrackets<ScheduledAtomics, 2> brackets;
    BasicSinkArray<Registering, ScheduledAtomics, 2> sinks;
    Registering sink;
    Flag unmapped{false};
    bool registered_old_memory = false;
  };
  const auto explored = Scheduler::explore({.preemptions = 4, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    const auto coming = [state] {
      state->sinks.add(state->sink);
      state->sink.registered.store(true);
      if (state->brackets.changing(kMemory)) state->sink.doomed.store(true);
      state->registered_old_memory = !state->unmapped.load();
    };
    const auto unmapping = [state] {
      state->brackets.open(kMemory);
      state->sinks.for_each([](Registering& sink) {
        if (sink.registered.load()) sink.doomed.store(true);
      });
      state->unmapped.store(true);
      state->brackets.close(kMemory);
    };
    return test::Scenario{{coming, unmapping}, [state] {
                            EXPECT_TRUE(!state->registered_old_memory || state->sink.doomed.load());
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

}  // namespace
}  // namespace pinion
