// The region's state word under chosen interleavings. The bodies use it as Domain does.
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

/// A word with the reap list reduced to a count: how often a thread won the right to put it there.
struct Slot {
  Word word;
  ScheduledAtomics::Atomic<int> queued{0};
  ScheduledAtomics::Atomic<bool> retired{false};  ///< set by the owner of the retiring region
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
    const auto seen = word.load();
    return seen.leasable() && try_lease(seen.proof());
  }
  /// Tries by a hint of that time.
  bool try_lease(std::uint64_t proof) {
    if (word.count_in(proof)) return true;
    release();
    return false;
  }
  Word::Released end_hold() {
    const auto released = word.end_hold();
    if (released == Word::Released::idle_doomed) give_back();
    return released;
  }
  /// A peer's use.
  void hold() {
    if (!word.begin_hold(word.load().generation())) return;
    granted.fetch_add(1);
    EXPECT_FALSE(retired.load());
    EXPECT_GE(word.load().holds(), 1u);
    EXPECT_FALSE(retired.load());
    end_hold();
  }
  /// A transfer: the lease's promises must hold until it is returned.
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
    if (before.registered() && !before.used()) give_back();
  }
  bool retire() {
    if (!word.try_retire()) return false;
    EXPECT_FALSE(retired.exchange(true)) << "two owners";
    return true;
  }
  /// Treats one entry of the list as begin_reap() does.
  bool reap() {
    if (queued.load() == 0) return false;
    queued.fetch_sub(1);
    word.unclaim_reaping();
    if (retire()) return true;
    if (!word.load().used()) give_back();
    return false;
  }
  /// The next region in the same slot.
  void recycle(std::uint32_t leases) {
    word.set_free();
    retired.store(false);
    word.begin_registering(leases);
    EXPECT_TRUE(word.commit());
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
                            // Exactly one of: reaped, still on the list.
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
                             state->word.count_in(state->word.load().proof());
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
                             slot->recycle(1);
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

// A hint may be of a region that is gone, in a slot that holds another one by now.
TEST(RegionWordSchedule, AProofIsOfOneGeneration) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    const std::uint64_t proof = slot->word.load().proof();
    const std::uint32_t generation = slot->word.load().generation();
    const auto use = [=] {
      if (!slot->try_lease(proof)) return;
      EXPECT_EQ(slot->word.load().generation(), generation);
      EXPECT_FALSE(slot->retired.load());
      slot->release();
    };
    return test::Scenario{{use, use,
                           [slot] {
                             if (!slot->retire()) return;
                             slot->recycle(0);
                             slot->doom();
                           }},
                          [slot, generation] {
                            const auto value = slot->word.load();
                            EXPECT_EQ(value.leases(), 0u);
                            EXPECT_EQ(slot->queued.load(), value.generation() != generation);
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

// A segment's owner may come late: a hook has doomed the region, and its slot holds another one by now.
TEST(RegionWordSchedule, ALateDoomLeavesALaterRegionAlone) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    const std::uint32_t generation = slot->word.load().generation();
    return test::Scenario{{[=] { slot->word.doom_only(generation); },
                           [slot] {
                             slot->doom();
                             if (slot->retire()) slot->recycle(0);
                           },
                           [slot] { slot->use(); }},
                          [slot, generation] {
                            const auto value = slot->word.load();
                            EXPECT_EQ(value.leases(), 0u);
                            EXPECT_EQ(value.doomed(), value.generation() == generation);
                          }};
  });
  EXPECT_GT(explored.schedules, 100u);
}

TEST(RegionWordSchedule, HoldsKeepARegionAsLeasesDo) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(0);
    return test::Scenario{
        {[slot] { slot->hold(); }, [slot] { slot->retire(); }, [slot] { slot->use(); }}, [slot] {
          const auto value = slot->word.load();
          EXPECT_FALSE(value.used());
          EXPECT_EQ(value.state(), slot->retired.load() ? RegionState::retiring : RegionState::registered);
        }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWordSchedule, DoomedRegionIsQueuedOnceWhenItsLastLeaseAndHoldReturn) {
  const auto explored = Scheduler::explore({.preemptions = 3}, [] {
    auto slot = std::make_shared<Slot>(1);
    EXPECT_TRUE(slot->word.begin_hold(slot->word.load().generation()));
    return test::Scenario{
        {[slot] { slot->doom(); }, [slot] { slot->release(); }, [slot] { slot->end_hold(); }}, [slot] {
          EXPECT_FALSE(slot->word.load().used());
          EXPECT_EQ(slot->queued.load(), 1);
          EXPECT_FALSE(slot->word.begin_hold(slot->word.load().generation())) << "it is doomed";
          EXPECT_TRUE(slot->reap());
        }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

TEST(RegionWordSchedule, PermanentRegionsAreRetiredOnlyWhenDoomed) {
  Scheduler::explore({.preemptions = 3}, [] {
    struct State {
      Word word;
      ScheduledAtomics::Atomic<bool> doomed{false};
    };
    auto state = std::make_shared<State>();
    state->word.begin_registering(0);
    EXPECT_TRUE(state->word.commit(Word::Commit::permanent));
    return test::Scenario{{[state] {
                             state->word.doom();
                             state->doomed.store(true);
                           },
                           [state] {
                             if (!state->word.try_retire()) return;
                             EXPECT_TRUE(state->word.load().doomed());
                           },
                           [state] {
                             const auto seen = state->word.load();
                             if (seen.leasable() && state->word.count_in(seen.proof())) {
                               EXPECT_NE(state->word.release(), Word::Released::idle);
                             }
                           }},
                          [state] {
                            const auto value = state->word.load();
                            if (value.registered()) {
                              EXPECT_EQ(state->word.try_retire(), value.leases() == 0);
                            }
                          }};
  });
}

// ---- the ends of the fields ----

TEST(RegionWord, NoMoreLeasesAreGrantedThanCanBeCounted) {
  RegionWord word;
  word.begin_registering(0);
  ASSERT_TRUE(word.commit());
  const auto before = word.load();
  std::uint32_t granted = 0;
  while (word.count_in(before.proof())) ++granted;
  EXPECT_EQ(granted, RegionWord::kMostLeases);
  EXPECT_FALSE(word.load().leasable());
  EXPECT_FALSE(word.count_in(before.proof()));
  EXPECT_EQ(word.load().holds(), 0u);
  for (std::uint32_t i = 0; i < granted + 2; ++i) word.release();
  EXPECT_EQ(word.load().bits, before.bits);
}

TEST(RegionWord, NoMoreHoldsAreGrantedThanCanBeCounted) {
  RegionWord word;
  word.begin_registering(1);
  ASSERT_TRUE(word.commit());
  const auto before = word.load();
  std::uint32_t granted = 0;
  while (word.begin_hold(before.generation())) ++granted;
  EXPECT_EQ(granted, RegionWord::kMostHolds);
  EXPECT_EQ(word.load().leases(), 1u);
  EXPECT_TRUE(word.load().leasable());
  EXPECT_EQ(word.load().generation(), before.generation());
  for (std::uint32_t i = 0; i < granted; ++i) EXPECT_EQ(word.end_hold(), RegionWord::Released::in_use);
  EXPECT_EQ(word.load().bits, before.bits);
  EXPECT_EQ(word.release(), RegionWord::Released::idle);
}

TEST(RegionWord, GenerationsAreUsedUpAndNeverWrap) {
  RegionWord word;
  std::uint32_t used = 0;
  for (; !word.at_last_generation(); ++used) {
    word.begin_registering(0);
    word.abandon(0);
    word.set_free();
    ASSERT_EQ(word.load().generation(), used + 1);
  }
  EXPECT_EQ(used, RegionWord::kLastGeneration);
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
