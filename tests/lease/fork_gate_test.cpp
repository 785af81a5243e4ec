// The gate between forks and the helper's work.
#include "lease/fork_gate.h"

#include <gtest/gtest.h>

#include <future>

namespace pinion {
namespace {

TEST(ForkGate, AForkWaitsForTheWorkUnderWay) {
  ForkGate gate;
  std::promise<void> working, may_end;
  std::atomic<bool> ended{false};
  std::thread helper([&] {
    const ForkGate::Passage passage(gate);
    working.set_value();
    may_end.get_future().wait();
    ended = true;
  });
  working.get_future().wait();
  EXPECT_FALSE(gate.is_closed());
  EXPECT_FALSE(gate.close());  // the wait for unfinished work runs out
  EXPECT_TRUE(gate.is_closed());
  may_end.set_value();
  EXPECT_TRUE(gate.close());
  EXPECT_TRUE(ended);
  gate.open();
  gate.open();
  helper.join();
  EXPECT_FALSE(gate.is_closed());
}

TEST(ForkGate, NoWorkMeetsAFork) {
  ForkGate gate;
  constexpr int kForks = 300;
  std::atomic<int> forking{0}, forkers{3};
  std::thread helper([&] {
    while (forkers > 0) {
      const ForkGate::Passage passage(gate);
      EXPECT_EQ(forking, 0);
    }
  });
  const auto fork = [&] {
    for (int i = 0; i < kForks; ++i) {
      EXPECT_TRUE(gate.close());
      ++forking;
      std::this_thread::yield();
      --forking;
      gate.open();
    }
    --forkers;
  };
  std::thread first(fork), second(fork);
  fork();
  first.join();
  second.join();
  helper.join();
}

TEST(ForkGate, ClosedForGoodItLetsTheWorkPassAndForksToo) {
  ForkGate gate;
  gate.close_for_good();
  EXPECT_TRUE(gate.is_closed());
  EXPECT_TRUE(gate.is_closed_for_good());
  { const ForkGate::Passage passage(gate); }
  EXPECT_TRUE(gate.close());
  gate.open();
  EXPECT_TRUE(gate.is_closed());
  { const ForkGate::Passage passage(gate); }
}

}  // namespace
}  // namespace pinion
