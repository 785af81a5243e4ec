// Runs two or three small thread bodies under interleavings that the test chooses. So a lock-free part is
// tried in every order that matters, beyond those that the machine happens to produce.
//
// ScheduledAtomics is an atomics policy (base/atomics.h) whose every access first lets the scheduler choose
// the next thread. The bodies are real threads that hand one baton around: exactly one runs at any time, so
// the model is sequential consistency. Reorderings of weaker memory are not explored; ThreadSanitizer and the
// memory orders themselves answer for those.
//
// explore() is exhaustive up to a number of preemptions (most bugs need two or three), then random. Bodies
// must not block on anything but spins that call relax(), and must do the same in every run of a schedule.
// State is made anew for each schedule by `make`; make() and check() run unscheduled.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

namespace pinion::test {

/// Multiplies the steps of long tests: PINION_TEST_SCALE (default 1).
inline double test_scale() {
  const char* text = std::getenv("PINION_TEST_SCALE");
  const double scale = text ? std::atof(text) : 1;
  return scale > 0 ? scale : 1;
}

struct Scenario {
  std::vector<std::function<void()>> threads;
  std::function<void()> check = [] {};  ///< after all threads are done; gtest expectations
};

class Scheduler {
 public:
  /// test_scale() multiplies the schedules, and never leaves any out.
  struct Limits {
    unsigned preemptions = 2;
    std::uint64_t exhaustive = 20'000;  ///< most schedules of the exhaustive part
    std::uint64_t random = 500;         ///< schedules after it
    std::uint64_t seed = 1;
  };
  struct Explored {
    std::uint64_t schedules = 0;
    bool complete = false;  ///< the exhaustive part came to its end
  };

  /// Explores until the first schedule in which an expectation fails; that schedule is printed.
  static Explored explore(Limits limits, const std::function<Scenario()>& make) {
    return Scheduler().run_all(limits, make);
  }

  /// Before an access: another thread may go on first. Outside of scheduled bodies it returns at once.
  static void point() {
    if (self_) self_->scheduler->choose(self_->index, false);
  }
  /// In a spin: another thread has to go on first.
  static void spin() {
    if (self_) self_->scheduler->choose(self_->index, true);
  }

 private:
  struct Worker {
    Scheduler* scheduler;
    unsigned index;
    std::binary_semaphore turn{0};
    bool done = true;
    std::thread thread;
  };
  struct Choice {
    unsigned taken = 0;
    unsigned options = 1;
  };
  static constexpr std::uint64_t kMostPoints = 200'000;

  Scheduler() = default;
  ~Scheduler() {
    quit_ = true;
    for (auto& worker : workers_) {
      worker->turn.release();
      worker->thread.join();
    }
  }

  void start(std::size_t threads) {
    for (unsigned i = 0; i < threads; ++i) {
      workers_.push_back(std::make_unique<Worker>());
      workers_[i]->scheduler = this;
      workers_[i]->index = i;
    }
    for (auto& worker : workers_) worker->thread = std::thread([this, w = worker.get()] { work(*w); });
  }

  void work(Worker& worker) {
    self_ = &worker;
    for (;;) {
      worker.turn.acquire();
      if (quit_) return;
      scenario_->threads[worker.index]();
      worker.done = true;
      hand_over(worker.index, pick(worker.index, true));
    }
  }

  /// The thread that runs next. `must_leave`: `current` is done or spins.
  unsigned pick(unsigned current, bool must_leave) {
    unsigned others[8];
    unsigned n = 0;
    for (unsigned i = 1; i < workers_.size(); ++i) {
      const unsigned other = static_cast<unsigned>((current + i) % workers_.size());
      if (!workers_[other]->done) others[n++] = other;
    }
    if (n == 0) return current;  // it goes on alone, or (done) the run ends
    const unsigned stay = must_leave ? 0 : 1;
    const unsigned options = must_leave ? n : (preemptions_left_ > 0 ? n + 1 : 1);
    const unsigned taken = decide(options, stay != 0);
    if (taken < stay) return current;
    if (stay) --preemptions_left_;
    return others[taken - stay];
  }

  unsigned decide(unsigned options, bool may_stay) {
    if (options == 1) return 0;
    if (random_) {
      // Rare preemptions reach deeper states than even odds.
      if (may_stay && (*random_)() % 8 != 0) return 0;
      const unsigned first = may_stay ? 1 : 0;
      return first + static_cast<unsigned>((*random_)() % (options - first));
    }
    if (depth_ == path_.size()) path_.push_back({0, options});
    EXPECT_EQ(path_[depth_].options, options) << "the bodies are not deterministic";
    return path_[depth_++].taken;
  }

  void choose(unsigned current, bool must_leave) {
    if (++points_ > kMostPoints) {
      std::fprintf(stderr, "no progress after %llu points; schedule: %s\n",
                   static_cast<unsigned long long>(kMostPoints), schedule().c_str());
      std::abort();
    }
    hand_over(current, pick(current, must_leave));
  }

  void hand_over(unsigned from, unsigned to) {
    if (trace_.empty() || trace_.back().first != to) trace_.push_back({to, 0});
    ++trace_.back().second;
    if (workers_[from]->done && to == from) {
      finished_.release();
      return;
    }
    if (to == from) return;
    const bool parks = !workers_[from]->done;
    workers_[to]->turn.release();
    if (parks) workers_[from]->turn.acquire();
  }

  void run(Scenario scenario) {
    if (workers_.empty()) start(scenario.threads.size());
    scenario_ = &scenario;
    depth_ = 0;
    points_ = 0;
    trace_.clear();
    for (auto& worker : workers_) worker->done = false;
    const unsigned first = decide(static_cast<unsigned>(workers_.size()), false);
    trace_.push_back({first, 0});
    workers_[first]->turn.release();
    finished_.acquire();
    scenario.check();
  }

  bool next_path() {
    while (!path_.empty() && path_.back().taken + 1 == path_.back().options) path_.pop_back();
    if (path_.empty()) return false;
    ++path_.back().taken;
    return true;
  }

  Explored run_all(const Limits& limits, const std::function<Scenario()>& make) {
    Explored explored;
    const auto scaled = [](std::uint64_t n) {
      return static_cast<std::uint64_t>(static_cast<double>(n) * std::max(1., test_scale()));
    };
    const auto one = [&](unsigned preemptions) {
      preemptions_left_ = preemptions;
      run(make());
      ++explored.schedules;
      if (::testing::Test::HasFailure()) ADD_FAILURE() << "schedule (thread x points): " << schedule();
      return !::testing::Test::HasFailure();
    };
    do {
      if (explored.schedules >= scaled(limits.exhaustive)) break;
      if (!one(limits.preemptions)) return explored;
      explored.complete = !next_path();
    } while (!explored.complete);
    std::mt19937_64 random(limits.seed);
    random_ = &random;
    for (std::uint64_t i = 0; i < scaled(limits.random) && one(~0u); ++i) {
    }
    random_ = nullptr;
    return explored;
  }

  std::string schedule() const {
    std::string text;
    for (const auto& [thread, points] : trace_)
      text += std::to_string(thread) + "x" + std::to_string(points) + " ";
    return text;
  }

  static inline thread_local Worker* self_ = nullptr;

  // Everything below is written by the thread that holds the baton (the semaphores order it).
  std::vector<std::unique_ptr<Worker>> workers_;
  std::binary_semaphore finished_{0};
  bool quit_ = false;
  const Scenario* scenario_ = nullptr;
  std::vector<Choice> path_;
  std::size_t depth_ = 0;
  unsigned preemptions_left_ = 0;
  std::uint64_t points_ = 0;
  std::mt19937_64* random_ = nullptr;
  std::vector<std::pair<unsigned, std::uint64_t>> trace_;
};

/// The policy. Memory orders are accepted and ignored: every access is sequentially consistent.
struct ScheduledAtomics {
  template <class T>
  class Atomic {
   public:
    Atomic() = default;
    Atomic(T value) : value_(value) {}
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order = std::memory_order_seq_cst) const {
      Scheduler::point();
      return value_.load();
    }
    void store(T value, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      value_.store(value);
    }
    T exchange(T value, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.exchange(value);
    }
    template <class D>
    T fetch_add(D by, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.fetch_add(static_cast<T>(by));
    }
    template <class D>
    T fetch_sub(D by, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.fetch_sub(static_cast<T>(by));
    }
    T fetch_or(T bits, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.fetch_or(bits);
    }
    T fetch_and(T bits, std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.fetch_and(bits);
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                                 std::memory_order = std::memory_order_seq_cst) {
      Scheduler::point();
      return value_.compare_exchange_strong(expected, desired);
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order = std::memory_order_seq_cst,
                               std::memory_order = std::memory_order_seq_cst) {
      return compare_exchange_strong(expected, desired);
    }

   private:
    std::atomic<T> value_{};
  };

  static void relax() { Scheduler::spin(); }
};

}  // namespace pinion::test
