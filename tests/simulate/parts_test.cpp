// The parts of a simulated process, each by itself.
#include <gtest/gtest.h>

#include <vector>

#include "simulate/events.h"
#include "simulate/helper.h"
#include "simulate/threads.h"

namespace pinion::simulate {
namespace {

TEST(Events, ComeInOrderOfTimeAndThenAsScheduled) {
  Events events(100);
  events.schedule(300, Event::What::script, false, 1);
  events.schedule(200, Event::What::script, false, 2);
  events.schedule(200, Event::What::script, false, 3);
  events.schedule(50, Event::What::script, false, 4);  // the past is now
  std::vector<std::uint32_t> order;
  std::vector<Time> times;
  while (events.next() != kNever) {
    order.push_back(events.take().index);
    times.push_back(events.now());
  }
  EXPECT_EQ(order, (std::vector<std::uint32_t>{4, 2, 3, 1}));
  EXPECT_EQ(times, (std::vector<Time>{100, 200, 200, 300}));
}

TEST(Events, OfTheApplicationAreDelayedAlone) {
  Events events(0);
  events.schedule(10, Event::What::thread, true, 1);
  events.schedule(20, Event::What::helper_acts, false, 2);
  EXPECT_TRUE(events.of_application());
  events.delay_application(15);
  EXPECT_EQ(events.take().index, 2u);
  EXPECT_EQ(events.next(), 25);
  events.take();
  EXPECT_FALSE(events.of_application());
}

TEST(NoticedRing, LosesRecordsBeyondItsPlacesButNoMemoryEvent) {
  NoticedRing ring(4);
  Noticed lease, change;
  lease.taken.record.kind = runlog::EventKind::lease;
  change.taken.record.kind = runlog::EventKind::memory_event;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ring.push(lease));
  EXPECT_FALSE(ring.filling());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ring.push(lease));
  EXPECT_TRUE(ring.filling());
  EXPECT_FALSE(ring.push(lease));
  EXPECT_TRUE(ring.push(change));
  EXPECT_EQ(ring.waiting().size(), 5u);
  EXPECT_TRUE(ring.lost());
  EXPECT_FALSE(ring.lost()) << "told once";
}

TEST(WakeUps, OnlyTheLastPlannedOneCounts) {
  Events events(1000);
  ProcessSettings settings;
  settings.wake_latency = [] { return Duration{7}; };
  WakeUps wake_ups(settings, events);
  wake_ups.plan(3000);
  wake_ups.plan(2000);
  const Event first = events.take();
  EXPECT_EQ(first.time, 2007);
  EXPECT_TRUE(wake_ups.counts(first.index));
  EXPECT_EQ(wake_ups.come(), 7);
  EXPECT_FALSE(wake_ups.planned());
  EXPECT_EQ(wake_ups.at(), kNever);
  EXPECT_FALSE(wake_ups.counts(events.take().index));
  wake_ups.plan(kNever);
  EXPECT_EQ(events.next(), kNever);
}

TEST(HeldLeases, GiveNumbersAgain) {
  HeldLeases leases;
  const std::uint32_t first = leases.take(), second = leases.take();
  EXPECT_NE(first, second);
  leases.give_back(first);
  EXPECT_FALSE(leases[first].live);
  EXPECT_EQ(leases.take(), first);
  EXPECT_TRUE(leases[first].live);
}

}  // namespace
}  // namespace pinion::simulate
