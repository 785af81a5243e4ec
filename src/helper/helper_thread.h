// The helper's thread, from its start to its end. Owns the thread and the words by which others await it.
// start(), ask_to_end(), join() and await_end(): the engine. stopping(): any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "lease/bell.h"

namespace pinion {

class HelperThread {
 public:
  HelperThread(HelperBell& bell, Clock& clock) : bell_(bell), clock_(clock) {}

  /// Starts the thread, which runs `work`.
  /// `open_files` gets the thread's number (0: not known), before start() returns to the program, which may
  /// take any number for its own files from then on; `work` begins after it.
  Error start(std::function<void()> work, const std::function<void(pid_t)>& open_files);
  bool stopping() const { return stopping_.load(std::memory_order_acquire); }
  void ask_to_end();
  void join() { thread_.join(); }
  /// Waits as long as `progress` grows, at most about a minute. False: the thread has not ended.
  bool await_end(const std::function<std::uint32_t()>& progress);

 private:
  HelperBell& bell_;
  Clock& clock_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint32_t> runs_{0};        ///< 1 from the thread's start to the end of all that it does
  std::atomic<std::uint32_t> files_open_{0};  ///< 1: open_files has returned
};

/// The calling thread has the system's slice meanwhile: it holds locks that other threads wait for.
class OrdinarySlice {
 public:
  OrdinarySlice();
  ~OrdinarySlice();
  OrdinarySlice(const OrdinarySlice&) = delete;
  OrdinarySlice& operator=(const OrdinarySlice&) = delete;
};

}  // namespace pinion
