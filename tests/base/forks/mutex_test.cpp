// Tests that what a thread of the parent's holds at a fork is free in the child, which lacks that thread:
// mutexes of the process, and the guards of static variables.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/process_mutex.h"
#include "support/gate.h"
#include "support/in_child.h"

namespace pinion {
namespace {

/// Forks while another thread is inside of `hold`, which passes the gate there; the child runs `take`.
void fork_inside(test::Gate& gate, const std::function<void()>& hold, const std::function<void()>& take) {
  gate.arm();
  std::thread holder(hold);
  ASSERT_TRUE(gate.wait_reached());
  test::in_child([&] {
    ::alarm(30);
    take();
  });
  gate.open();
  holder.join();
}

TEST(LockAtFork, AMutexIsFree) {
  ProcessMutex mutex;
  test::Gate gate;
  const auto take = [&] { const ProcessLock held(mutex); };
  fork_inside(
      gate,
      [&] {
        const ProcessLock held(mutex);
        gate.pass();
      },
      take);
  take();
}

TEST(LockAtFork, AChildsThreadsExcludeEachOther) {
  ProcessMutex mutex;
  test::Gate gate;
  fork_inside(
      gate,
      [&] {
        const ProcessLock held(mutex);
        gate.pass();
      },
      [&] {
        int sum = 0;
        const auto add = [&] {
          for (int i = 0; i < 10000; ++i) {
            const ProcessLock held(mutex);
            ++sum;
          }
        };
        std::thread other(add);
        add();
        other.join();
        EXPECT_EQ(sum, 20000);
      });
}

test::Gate g_making;

int made_once() {
  static const int made = [] {
    g_making.pass();
    return 7;
  }();
  return made;
}

TEST(LockAtFork, AStaticVariableIsMadeAnew) {
  fork_inside(
      g_making, [] { made_once(); }, [] { EXPECT_EQ(made_once(), 7); });
  EXPECT_EQ(made_once(), 7);
}

TEST(LockAtFork, AStaticVariableWaitsForItsMaker) {
  test::Gate gate;
  int made = 0;
  const auto use = [&] {
    static const int once = [&] {
      gate.pass();
      return ++made;
    }();
    return once;
  };
  gate.arm();
  std::thread maker(use);
  ASSERT_TRUE(gate.wait_reached());
  std::thread other(use);
  gate.open();
  maker.join();
  other.join();
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace pinion
