// Brackets under chosen interleavings, alone and with the index as Dekker's protocol.
#include <gtest/gtest.h>

#include <memory>

#include "monitor/brackets.h"
#include "registry/region_index.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

constexpr Range kMemory{0x10000, 0x20000};

TEST(BracketsSchedule, AreSeenFromOpenToClose) {
  using Small = BasicBrackets<ScheduledAtomics, 1>;  // the second one overflows
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 4'000}, [] {
    auto brackets = std::make_shared<Small>();
    const auto event = [brackets](Range range) {
      return [brackets, range] {
        brackets->open(range);
        EXPECT_TRUE(brackets->changing({range.begin, range.begin + 1}));
        brackets->close(range);
      };
    };
    return test::Scenario{{event(kMemory), event(kMemory), event({0x30000, 0x40000})}, [brackets] {
                            EXPECT_FALSE(brackets->changing(kMemory));
                            EXPECT_FALSE(brackets->changing({0x30000, 0x40000}));
                          }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

// One thread must not close another's bracket that took the slot of an equal one meanwhile.
TEST(BracketsSchedule, EqualBracketsAreClosedByTheirOwners) {
  using Small = BasicBrackets<ScheduledAtomics, 2>;
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 4'000}, [] {
    auto brackets = std::make_shared<Small>();
    const Range larger{kMemory.begin, kMemory.end + 0x10000};
    const auto event = [brackets] {
      brackets->open(kMemory);
      brackets->close(kMemory);
    };
    return test::Scenario{{event, event,
                           [brackets, larger] {
                             brackets->open(larger);
                             EXPECT_TRUE(brackets->changing({kMemory.end, larger.end}));
                             brackets->close(larger);
                           }},
                          [brackets, larger] { EXPECT_FALSE(brackets->changing(larger)); }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

TEST(Brackets, CountWhatDoesNotFit) {
  BasicBrackets<StdAtomics, 2> brackets;
  const auto nth = [](Address i) { return Range{i * 0x1000, (i + 1) * 0x1000}; };
  for (Address i = 0; i < 4; ++i) brackets.open(nth(i));
  EXPECT_TRUE(brackets.changing(nth(100)));  // too many: everything counts as changing
  for (Address i = 0; i < 4; ++i) brackets.close(nth(i));
  for (Address i = 0; i < 4; ++i) EXPECT_FALSE(brackets.changing(nth(i)));
}

TEST(Brackets, ReachTheEndsOfTheAddressSpace) {
  Brackets brackets;
  brackets.open({0, 0x1000});
  EXPECT_TRUE(brackets.changing({0, 1}));
  EXPECT_FALSE(brackets.changing({0x1000, 0x2000}));
  brackets.close({0, 0x1000});
  EXPECT_FALSE(brackets.changing({0, 0x1000}));
}

// Registering against unmapping: in every order, the hook sees the region or the registering thread sees the
// bracket. A region registered before the memory went, and never doomed, would be stale.
TEST(DekkerSchedule, NoRegistrationOutlivesItsMemory) {
  struct Region {
    ScheduledAtomics::Atomic<Address> begin{kMemory.begin};
    ScheduledAtomics::Atomic<Address> end{kMemory.end};
    ScheduledAtomics::Atomic<bool> doomed{false};
  };
  struct State {
    BasicBrackets<ScheduledAtomics, 2> brackets;
    Region region;
    ScheduledAtomics::Atomic<bool> unmapped{false};
    bool registered_old_memory = false;
  };
  BasicRegionIndex<Region, ScheduledAtomics> index;  // one for all schedules: it never gives memory back
  ASSERT_TRUE(index.reserve());
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 20'000}, [&index] {
    auto state = std::make_shared<State>();
    const auto registering = [state, &index] {
      if (state->brackets.changing(kMemory)) return;
      index.insert(&state->region);
      if (state->brackets.changing(kMemory)) state->region.doomed.store(true);
      state->registered_old_memory = !state->unmapped.load();
    };
    const auto unmapping = [state, &index] {
      state->brackets.open(kMemory);
      index.for_each_overlap(kMemory, [](Region* region) { region->doomed.store(true); });
      state->unmapped.store(true);
      state->brackets.close(kMemory);
    };
    return test::Scenario{{registering, unmapping}, [state, &index] {
                            index.erase(&state->region);
                            EXPECT_TRUE(!state->registered_old_memory || state->region.doomed.load());
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

}  // namespace
}  // namespace pinion
