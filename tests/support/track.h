// A thread on a track of numbered points: the test lets it run to one, where it stands until it may go on. Of
// two such threads one runs at any time, so that every order of their points can be made. Points may lie in
// hooks.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace pinion::test {

class Track {
 public:
  static constexpr int kEnd = 1'000'000;

  explicit Track(std::function<void()> body) : body_(std::move(body)) {}
  ~Track() { run_to(kEnd); }
  Track(const Track&) = delete;
  Track& operator=(const Track&) = delete;

  /// The thread stands here if it should.
  void at(int point) {
    std::unique_lock lock(mutex_);
    if (point < stop_) return;
    standing_at_ = point;
    changed_.notify_all();
    changed_.wait(lock, [&] { return point < stop_; });
    standing_at_ = kNowhere;
  }

  /// Lets the thread run until it stands at the point, or at a later one, or is over.
  void run_to(int point) {
    {
      std::unique_lock lock(mutex_);
      stop_ = point;
      changed_.notify_all();
      if (!thread_.joinable() && !over_) thread_ = std::thread([this] { run(); });
      changed_.wait(lock, [&] { return standing_at_ >= point || over_; });
      if (!over_) return;
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  static constexpr int kNowhere = -1;

  void run() {
    body_();
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

  const std::function<void()> body_;
  std::thread thread_;
  std::mutex mutex_;  ///< guards all that follows
  std::condition_variable changed_;
  int stop_ = 0;
  int standing_at_ = kNowhere;
  bool over_ = false;
};

}  // namespace pinion::test
