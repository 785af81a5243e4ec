// Keeps forks and the helper's work on registrations apart: memory that is registered while a fork copies the
// process may be missing in the child (process/fork.cpp). The helper passes the gate with each piece of work;
// a forking thread closes it, and waits for the piece under way.
//
// That wait is bounded, because the forking thread may hold a lock that the helper waits for. Several threads
// may fork at a time. While it is closed, regions go with their leases. It stays so for good in a process
// that was stopped (node/stop_request.h), where the helper goes on to pass. Not for hooks.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace pinion {

class ForkGate {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000};

  /// A piece of the helper's work. Beginning it waits for the end of all forks under way.
  class Passage {
   public:
    explicit Passage(ForkGate& gate) : gate_(gate) { gate.enter(); }
    ~Passage() { gate_.leave(); }
    Passage(const Passage&) = delete;
    Passage& operator=(const Passage&) = delete;

   private:
    ForkGate& gate_;
  };

  /// Closes the gate before a fork. False: patience ran out.
  bool close() {
    forks_.fetch_add(1, std::memory_order_seq_cst);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (inside_.load(std::memory_order_seq_cst)) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  /// Opens it in the parent after the fork; also where close() returned false.
  void open() {
    forks_.fetch_sub(1, std::memory_order_release);
    forks_.notify_all();
  }
  /// Makes regions go with their leases from now on, whether a fork is under way or not.
  void close_for_good() { forks_.fetch_or(kForGood, std::memory_order_seq_cst); }
  bool is_closed_for_good() const { return (forks_.load(std::memory_order_relaxed) & kForGood) != 0; }
  /// Any thread. After a locked change of a region's word, it sees the gate closed if the closing thread has
  /// missed that change.
  bool is_closed() const { return forks_.load(std::memory_order_seq_cst) != 0; }

 private:
  void enter() {
    for (;;) {
      inside_.store(true, std::memory_order_seq_cst);
      const std::uint32_t forks = forks_.load(std::memory_order_seq_cst);
      if ((forks & ~kForGood) == 0) return;
      leave();
      forks_.wait(forks, std::memory_order_acquire);
    }
  }
  void leave() { inside_.store(false, std::memory_order_seq_cst); }

  static constexpr std::uint32_t kForGood = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> forks_{0};  ///< under way, and kForGood
  std::atomic<bool> inside_{false};      ///< the helper is at work
};

}  // namespace pinion
