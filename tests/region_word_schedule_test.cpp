// The region's state word under chosen interleavings. The bodies do what Domain does with it.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "registry/region_word.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using test::ScheduledAtomics;
using test::Scheduler;
using Word = BasicRegionWord<ScheduledAtomics>;

/// A word with the reap list reduced to a count: how often somebody won the right to put it there.
struct Slot {
  Word word;
  ScheduledAtomics::Atomic<int> queued{0};
  ScheduledAtomics::Atomic<bool> retired{false};  ///< set by whoever owns the region as retiring
  ScheduledAtomics::Atomic<int> granted{0};

  explicit Slot(std::uint32_t leases) {
    word.begin_registering(leases);
    EXPECT_TRUE(word.commit());
  }

  void give_back() {
    if (word.claim_reaping()) queued.fetch_add(1);
  }
  Word::Released release() {
    const auto released = word.release();
    if (released == Word::Released::idle_doomed) give_back();
    return released;
  }
  bool try_lease() {
    if (word.count_in()) return true;
    release();
    return false;
  }
  /// A transfer: what a lease promises must hold until it is returned.
  void use() {
    if (!try_lease()) return;
    granted.fetch_add(1);
    EXPECT_FALSE(retired.load());
    const auto value = word.load();
    EXPECT_EQ(value.state(), RegionState::registered);
    EXPECT_GE(value.leases(), 1u);
    EXPECT_FALSE(retired.load());
    release();
  }
  void doom() {
    const auto before = word.doom();
    if (before.state() == RegionState::registered && before.leases() == 0) give_back();
  }
  bool retire() {
    if (!word.try_retire()) return false;
    EXPECT_FALSE(retired.exchange(true)) << "two owners";
    return true;
  }
  /// What begin_reap() does with one entry of the list.
  bool reap() {
    if (queued.load() == 0) return false;
    queued.fetch_sub(1);
    word.unclaim_reaping();
    if (retire()) return true;
    if (word.load().leases() == 0) give_back();
    return false;
  }
};

TEST(RegionWordSchedule, RetiresOnlyWithoutLeases) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    const auto use = [slot] { slot->use(); };
    return test::Scenario{{use, [slot] { slot->retire(); }, use}, [slot] {
                            EXPECT_EQ(slot->word.load().leases(), 0u);
                            const auto state = slot->word.load().state();
                            EXPECT_EQ(state,
                                      slot->retired.load() ? RegionState::retiring : RegionState::registered);
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWordSchedule, DoomedRegionIsQueuedExactlyOnceWhenItsLastLeaseReturns) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(1);
    return test::Scenario{{[slot] { slot->doom(); }, [slot] { slot->release(); }, [slot] { slot->use(); }},
                          [slot] {
                            const auto value = slot->word.load();
                            EXPECT_EQ(value.leases(), 0u);
                            EXPECT_TRUE(value.doomed());
                            EXPECT_TRUE(value.queued());
                            EXPECT_EQ(slot->queued.load(), 1);
                            EXPECT_TRUE(slot->reap());
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWordSchedule, NothingIsLeasedAfterDoom) {
  Scheduler::explore({.preemptions = 4}, [] {
    auto slot = std::make_shared<Slot>(0);
    auto doomed = std::make_shared<ScheduledAtomics::Atomic<bool>>(false);
    return test::Scenario{{[=] {
                             slot->doom();
                             doomed->store(true);
                           },
                           [=] {
                             for (int i = 0; i < 2; ++i) {
                               const bool before = doomed->load();
                               if (!slot->try_lease()) continue;
                               EXPECT_FALSE(before);
                               slot->release();
                             }
                           }},
                          [slot] { EXPECT_EQ(slot->queued.load(), 1); }};
  });
}

TEST(RegionWordSchedule, ReapingRacesWithStragglersAndDooms) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    return test::Scenario{{[slot] {
                             slot->doom();
                             slot->reap();
                           },
                           [slot] { slot->use(); }, [slot] { slot->doom(); }},
                          [slot] {
                            // Either reaped or still on the list, never forgotten and never both.
                            EXPECT_EQ(slot->queued.load(), slot->retired.load() ? 0 : 1);
                            if (!slot->retired.load()) {
                              EXPECT_TRUE(slot->reap());
                            }
                            EXPECT_EQ(slot->word.load().leases(), 0u);
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWordSchedule, CommitOrDoomWins) {
  Scheduler::explore({.preemptions = 4}, [] {
    struct State {
      Word word;
      ScheduledAtomics::Atomic<int> committed{-1};
      ScheduledAtomics::Atomic<bool> saw_registered{false};
    };
    auto state = std::make_shared<State>();
    state->word.begin_registering(1);
    return test::Scenario{{[state] { state->committed.store(state->word.commit() ? 1 : 0); },
                           [state] {
                             const auto before = state->word.doom();
                             state->saw_registered.store(before.state() == RegionState::registered);
                           },
                           [state] {
                             state->word.count_in();
                             state->word.release();
                           }},
                          [state] {
                            // The hook finds it registered, or the registering side finds it doomed.
                            EXPECT_EQ(state->committed.load() == 1, state->saw_registered.load());
                            const auto value = state->word.load();
                            EXPECT_EQ(value.state() == RegionState::registered, state->committed.load() == 1);
                            EXPECT_FALSE(value.leasable());
                          }};
  });
}

TEST(RegionWordSchedule, RecyclingPreservesTheCountsOfStragglers) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    const std::uint32_t generation = slot->word.load().generation();
    return test::Scenario{{[slot] {
                             if (!slot->retire()) return;
                             slot->word.set_free();
                             slot->retired.store(false);
                             slot->word.begin_registering(1);
                             EXPECT_TRUE(slot->word.commit());
                             slot->release();
                           },
                           [slot] { slot->use(); }, [slot] { slot->use(); }},
                          [slot, generation] {
                            const auto value = slot->word.load();
                            EXPECT_EQ(value.leases(), 0u);
                            EXPECT_TRUE(value.leasable());
                            EXPECT_LE(value.generation() - generation, 1u);
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWord, GrantedLeasesOfARefusedRegistrationAreTakenBack) {
  RegionWord word;
  word.begin_registering(1);
  word.doom();
  EXPECT_FALSE(word.commit());
  word.abandon(1);
  EXPECT_EQ(word.load().state(), RegionState::retiring);
  EXPECT_EQ(word.load().leases(), 0u);
  EXPECT_FALSE(word.claim_reaping());
  word.set_free();
  EXPECT_FALSE(word.load().doomed());
  const auto generation = word.load().generation();
  word.begin_registering(0);
  EXPECT_EQ(word.load().generation(), generation + 1);
  EXPECT_TRUE(word.commit());
}

}  // namespace
}  // namespace pinion
