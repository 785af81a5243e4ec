// A hit beside the events that end a firehose, in every order of their accesses (firehose/initiator.h).
#include <gtest/gtest.h>

#include <memory>

#include "firehose/initiator.h"
#include "support/deterministic_scheduler.h"

namespace pinion {
namespace {

using namespace firehose;
using test::ScheduledAtomics;
using test::Scheduler;
using TestInitiator = BasicInitiator<ScheduledAtomics>;
using TestFirehose = BasicFirehose<ScheduledAtomics>;

constexpr Bucket kFirst = 7, kSecond = 8;

/// An initiator of one peer that holds kFirst, and the lock that its caller has.
struct State {
  TestInitiator initiator{1, 1};
  ScheduledAtomics::Atomic<bool> locked{false};
  ScheduledAtomics::Atomic<int> uses{0};  ///< of kFirst in its first epoch
  ScheduledAtomics::Atomic<bool> released{false};
  int releases = 0;
  BasicWaiter<ScheduledAtomics> waiter;

  State() { hold(kFirst, 1); }

  void act() {
    while (const auto sent = initiator.next_message()) {
      if (const auto* release = std::get_if<Release>(&sent->message))
        for (const BucketRef& ref : release->firehoses) let_go(ref);
      if (const auto* move = std::get_if<Move>(&sent->message))
        for (const BucketRef& ref : move->victims) let_go(ref);
    }
    while (const auto* const answered = initiator.next_answered())
      if (answered->firehose) end(*answered->firehose);
  }
  void end(TestFirehose& firehose) {
    if (!initiator.end_use(firehose)) return;
    initiator.drained(firehose);
    act();
  }
  void let_go(const BucketRef& ref) {
    if (ref.bucket != kFirst || ref.epoch != 1) return;
    EXPECT_EQ(uses.load(), 0);
    EXPECT_FALSE(released.exchange(true));
    ++releases;
  }

  template <class F>
  void with_lock(F&& f) {
    while (locked.exchange(true)) ScheduledAtomics::relax();
    f();
    locked.store(false);
  }
  void hold(Bucket bucket, Epoch epoch) {
    const auto need = initiator.need(0, bucket, waiter);
    if (need.what == TestInitiator::Need::hit) end(*need.firehose);
    if (!initiator.flush()) return;
    act();
    Answer answer;
    answer.limit = 1;
    answer.grants.add({{bucket, epoch}, {{{bucket * 4096, bucket * 4096 + 4096, bucket * 4096, epoch}}, 1}});
    initiator.answer(0, answer);
    act();
  }
  void use() {
    TestFirehose* firehose = initiator.try_use(0, kFirst);
    if (!firehose) return;
    const bool first = firehose->parts.items[0].key == 1;
    if (first) {
      uses.fetch_add(1);
      EXPECT_FALSE(released.load());
      uses.fetch_sub(1);
    }
    EXPECT_EQ(firehose->parts.items[0].begin, kFirst * 4096);
    if (initiator.end_use(*firehose))
      with_lock([&] {
        initiator.drained(*firehose);
        act();
      });
  }
};

TEST(FirehoseInitiatorSchedule, ARecalledFirehoseIsReleasedOnceAndAfterItsUses) {
  const auto explored = Scheduler::explore({.preemptions = 3, .exhaustive = 6'000}, [] {
    auto state = std::make_shared<State>();
    const auto use = [state] { state->use(); };
    const auto recall = [state] {
      state->with_lock([&] {
        state->initiator.recall(0, {{kFirst, 1}, 1});
        state->act();
      });
    };
    return test::Scenario{{use, recall, use}, [state] {
                            EXPECT_EQ(state->releases, 1);
                            EXPECT_EQ(state->initiator.size(), 0u);
                          }};
  });
  EXPECT_GT(explored.schedules, 500u);
}

// Its object becomes another bucket's, or the same bucket's in another epoch.
TEST(FirehoseInitiatorSchedule, AHitIsOfTheBucketThatWasAskedFor) {
  Scheduler::explore({.preemptions = 3, .exhaustive = 6'000}, [] {
    auto state = std::make_shared<State>();
    const auto use = [state] { state->use(); };
    const auto move = [state] {
      state->with_lock([&] {
        state->hold(kSecond, 2);
        state->hold(kFirst, 3);
      });
    };
    return test::Scenario{{use, move}, [state] { EXPECT_EQ(state->initiator.size(), 1u); }};
  });
}

}  // namespace
}  // namespace pinion
