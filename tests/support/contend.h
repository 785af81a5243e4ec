// A thread that contends for the core of another. For tests of what is lost by it.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace pinion::test {

inline void stay_on_one_cpu() {
  cpu_set_t all, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

/// Runs `measure` beside a thread that contends for its core.
template <class Measure>
void contend(Measure&& measure) {
  std::atomic<bool> over{false};
  std::thread other([&] {
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
  other.join();
}

}  // namespace pinion::test
