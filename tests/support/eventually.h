// Waiting for another thread's next step.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace pinion::test {

/// Whether it holds within a minute: more than any machine needs that gets there at all.
inline bool eventually(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace pinion::test
