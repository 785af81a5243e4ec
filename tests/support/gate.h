// A place where one thread is stopped and another sees that it is: how tests hold a device call, or a memory
// event, at a chosen moment. Any thread; the one that comes may be inside a hook, so that until the gate is
// armed a pass is one load.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pinion::test {

class Gate {
 public:
  /// The next pass stops.
  void arm() {
    const std::lock_guard lock(mutex_);
    reached_ = open_ = false;
    armed_.store(true, std::memory_order_release);
  }
  void pass() {
    if (!armed_.exchange(false, std::memory_order_acq_rel)) return;
    std::unique_lock lock(mutex_);
    reached_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  /// False when the thread took longer than `limit`; the default is more than any machine needs.
  [[nodiscard]] bool wait_reached(std::chrono::nanoseconds limit = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return reached_; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    armed_.store(false, std::memory_order_release);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::atomic<bool> armed_{false};
  std::mutex mutex_;  ///< guards all that follows
  std::condition_variable changed_;
  bool reached_ = false;
  bool open_ = false;
};

}  // namespace pinion::test
