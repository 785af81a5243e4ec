// Threads that copy memory beside the callers of staged copies. They call nothing of the driver's.
//
// Owns kHelpers threads (monitor/own_threads.h), begun at the first job. They are never joined: they sleep,
// in memory that is never freed, when the process ends. A piece that faults is left to the calling thread,
// where the program's handler finds what it knows. A forked child has none, and begins its own. One mutex
// guards the list of jobs; it is held to look at it only. Any thread outside of memory hooks.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/function_ref.h"
#include "base/mutex.h"
#include "intercept/cuda/staging_figures.h"

namespace pinion::cuda {

/// The thread that copies a piece.
enum class Copier { caller, helper };

class CopyThreads {
 public:
  /// The pieces of one copy, in order. The caller owns it, and copies as well.
  class Job {
   public:
    /// `copy(i, copier)` copies piece i, on any thread, several at a time. On a helper it may answer false,
    /// if the program's memory faults: the calling thread copies the piece then.
    Job(CopyThreads& threads, FunctionRef<bool(std::size_t piece, Copier)> copy);
    /// Pieces that nobody has begun are left out, and the one that the calling thread has left; waits for the
    /// others.
    ~Job();
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// The first `pieces` pieces may be copied from now on. Fewer than kMostInFlight may be unfinished.
    void post(std::size_t pieces);
    /// Copies a piece on the calling thread. False: all that were posted have begun.
    bool help();
    bool is_done(std::size_t piece) const {
      return done_[piece % staging::kMostInFlight].load(std::memory_order_acquire) == piece + 1;
    }
    /// Waits for a piece that has begun, and copies it if it was left to the caller.
    void wait(std::size_t piece);

   private:
    friend class CopyThreads;
    static constexpr std::size_t kNone = ~std::size_t{0};
    void run(std::size_t piece, Copier copier);
    /// On the calling thread: a handler of the program's faults may jump, or throw, out of it.
    void run_here(std::size_t piece);
    bool is_left(std::size_t piece) const {
      return left_[piece % staging::kMostInFlight].load(std::memory_order_acquire) == piece + 1;
    }
    void await_copiers(std::size_t piece);

    CopyThreads& threads_;
    const FunctionRef<bool(std::size_t, Copier)> copy_;
    std::size_t posted_ = 0, taken_ = 0;  ///< guarded by the threads' mutex
    Job* next_ = nullptr;                 ///< in the list; guarded likewise
    std::size_t copied_here_ = kNone;     ///< the piece that the calling thread is at
    /// By piece: its number plus one, when it is done, or left to the caller. A helper's store is the last
    /// that it does with a job.
    std::array<std::atomic<std::size_t>, staging::kMostInFlight> done_{}, left_{};
  };

  /// In a forked child: the threads are the parent's.
  void abandon_after_fork();

 private:
  void begin_threads() REQUIRES(mutex_);
  [[noreturn]] void work();
  /// The next piece of the job; of any one, in turn, if it is null. Null, and no piece: there is none.
  Job* take(Job* job, std::size_t& piece);
  void sleep_until_posted(std::uint32_t seen);

  Mutex mutex_;
  Job* first_ GUARDED_BY(mutex_) = nullptr;
  bool begun_ GUARDED_BY(mutex_) = false;
  /// Words that sleepers wait on, and how many there are: helpers for pieces, callers for their end.
  std::atomic<std::uint32_t> posts_{0}, idle_{0};
  std::atomic<std::uint32_t> ends_{0}, waiting_{0};
};

/// Returns those of the process.
CopyThreads& copy_threads();

}  // namespace pinion::cuda
