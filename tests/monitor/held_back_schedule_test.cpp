// Unmappings that are held back (monitor/held_back.h), in every order of their steps: memory that was mapped
// at a place since is never unmapped.
#include <gtest/gtest.h>

#include <memory>

#include "monitor/held_back.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;

constexpr Range kFirst{0x10000, 0x20000}, kSecond{0x20000, 0x30000}, kBoth{0x10000, 0x30000};
constexpr MemoryChange munmap_of(Range range) { return {range, Answer::hold_back}; }
constexpr MemoryChange map_over(Range range) { return {range, Answer::refuse}; }

enum Mapping { kNone, kOld, kNew };

struct State {
  BasicHeldBack<ScheduledAtomics, 2> held;
  ScheduledAtomics::Atomic<int> first{kOld}, second{kOld};  ///< the mappings there
  int carried = 0;

  void unmap(Range range) {
    if (range.overlaps(kFirst)) {
      EXPECT_NE(first.exchange(kNone), kNew);
    }
    if (range.overlaps(kSecond)) {
      EXPECT_NE(second.exchange(kNone), kNew);
    }
  }
  void carry_out() {
    held.carry_out([this](Range range) {
      unmap(range);
      ++carried;
      return true;
    });
  }
};

// The program unmaps, a holder holds on, the program maps other memory there.
TEST(HeldBackSchedule, MemoryMappedOverIsNeverUnmapped) {
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 20'000}, [] {
    auto state = std::make_shared<State>();
    EXPECT_EQ(state->held.answer_to(munmap_of(kFirst), Answer::hold_back), Answer::hold_back);
    const auto mapping = [state] {
      const Answer answer = state->held.answer_to(map_over(kFirst), Answer::proceed);
      EXPECT_NE(answer, Answer::hold_back);
      if (answer == Answer::proceed) {
        EXPECT_EQ(state->first.exchange(kNew), kNone);
      }
    };
    return test::Scenario{{mapping, [state] { state->carry_out(); }}, [state] {
                            EXPECT_EQ(state->carried, 1);
                            EXPECT_EQ(state->held.count(), 0u);
                          }};
  });
  EXPECT_TRUE(explored.complete);
}

// The program unmaps more, of which a part is held back and being carried out, and maps memory there anew
// wherever that memory has gone.
TEST(HeldBackSchedule, OverlappingUnmappingsAreOne) {
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 8'000}, [] {
    auto state = std::make_shared<State>();
    EXPECT_EQ(state->held.answer_to(munmap_of(kFirst), Answer::hold_back), Answer::hold_back);
    const auto unmapping = [state] {
      if (state->held.answer_to(munmap_of(kBoth), Answer::proceed) == Answer::proceed) state->unmap(kBoth);
      int none = kNone;
      state->first.compare_exchange_strong(none, kNew);
      state->second.compare_exchange_strong(none = kNone, kNew);
    };
    const auto carrying = [state] {
      state->carry_out();
      state->carry_out();
    };
    return test::Scenario{{unmapping, carrying}, [state] {
                            state->carry_out();
                            EXPECT_EQ(state->held.count(), 0u);
                            EXPECT_NE(state->first.load(), kOld);
                            EXPECT_NE(state->second.load(), kOld);
                          }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

// The holder holds on: its memory stays, with either thread carrying out.
TEST(HeldBackSchedule, WhatCannotGoStaysHeldBack) {
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 6'000}, [] {
    auto state = std::make_shared<State>();
    const auto unmapping = [state](Range range) {
      return [state, range] {
        EXPECT_EQ(state->held.answer_to(munmap_of(range), Answer::hold_back), Answer::hold_back);
      };
    };
    const auto carrying = [state] { state->held.carry_out([](Range) { return false; }); };
    return test::Scenario{
        {unmapping(kFirst), unmapping(kBoth), carrying}, [state] {
          EXPECT_EQ(state->held.count(), 2u);
          EXPECT_EQ(state->held.answer_to(map_over(kSecond), Answer::proceed), Answer::refuse);
          state->carry_out();
          EXPECT_EQ(state->carried, 1) << "they overlap";
          EXPECT_EQ(state->held.answer_to(map_over(kBoth), Answer::proceed), Answer::proceed);
        }};
  });
  EXPECT_GT(explored.schedules, 1000u);
}

TEST(HeldBack, RefusesWhenItIsFull) {
  BasicHeldBack<StdAtomics, 1> held;
  EXPECT_EQ(held.answer_to(munmap_of(kFirst), Answer::hold_back), Answer::hold_back);
  EXPECT_EQ(held.answer_to(munmap_of(kSecond), Answer::hold_back), Answer::refuse);
  EXPECT_EQ(held.answer_to(munmap_of(kSecond), Answer::proceed), Answer::proceed);
  held.carry_out([](Range range) { return range == kFirst; });
  EXPECT_EQ(held.answer_to(munmap_of(kSecond), Answer::hold_back), Answer::hold_back);
}

// Unseen by the hooks, the kernel may have given the place to other memory.
TEST(HeldBack, ForgetsWhatChangedInSpiteOfIt) {
  BasicHeldBack<StdAtomics, 4> held;
  EXPECT_EQ(held.answer_to(munmap_of(kFirst), Answer::hold_back), Answer::hold_back);
  EXPECT_EQ(held.answer_to(munmap_of(kSecond), Answer::hold_back), Answer::hold_back);
  EXPECT_EQ(held.answer_to({kFirst, Answer::proceed}, Answer::proceed), Answer::proceed);
  EXPECT_EQ(held.count(), 1u);
  held.forget({kSecond.end, kSecond.end + 1});
  EXPECT_EQ(held.count(), 1u);
  held.forget(kBoth);
  held.carry_out([](Range) {
    ADD_FAILURE() << "it may be other memory";
    return true;
  });
  EXPECT_EQ(held.count(), 0u);
}

}  // namespace
}  // namespace pinion
