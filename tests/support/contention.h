// Threads that contend for the core of another one: its turns are further apart than two ticks of the kernel.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>
#include <vector>

namespace pinion::test {

inline void stay_on_one_cpu() {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

/// Runs `measure` in a thread of its own, beside threads that contend for its core.
template <class Measure>
void contend(Measure&& measure) {
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 4; ++i)
    others.emplace_back([&] {
      stay_on_one_cpu();
      while (!over.load(std::memory_order_relaxed)) {
      }
    });
  std::thread measured([&] {
    stay_on_one_cpu();
    measure();
    over = true;
  });
  measured.join();
  for (std::thread& other : others) other.join();
}

}  // namespace pinion::test
