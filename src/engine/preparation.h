// Memory that is registered ahead of its first transfer, by threads of its own: whole heaps, in pieces. Owns
// the leases on the pieces, from the time when a piece is registered to its end; a failure or a cancel rolls
// all of it back. A piece is faulted in by steps of some 0.2 ms with pauses between, then leased as for a
// transfer. Between the steps a thread lets transfers that wait for a registration go first.
//
// Ordinary code, any thread. It ends before its domain closes. end_all() is for the end of the run; the
// leases then live on, as those of transfers do.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "engine/lease_path.h"

namespace pinion {

class Preparation {
 public:
  struct Request {
    std::vector<Range> ranges;
    Access access = Access::read;
    bool hugepages = false;       ///< advises the kernel to use them
    unsigned threads = 0;         ///< at most; 0: half of the cores, four at most
    std::size_t piece_bytes = 0;  ///< of one registration, at most; 0: 16 MiB, on a NIC about a millisecond
  };
  struct State {
    Error error;                 ///< EINPROGRESS: under way; else why it ended, or none: ready
    std::uint64_t bytes = 0;     ///< whole pages, in all
    std::uint64_t prepared = 0;  ///< of these, registered
    Duration elapsed = 0;
    Duration left = kNever;  ///< an estimate; kNever: unknown
  };

  /// Begins in a domain of the run; `site` is the caller's place. Null and an error: it cannot begin.
  static std::unique_ptr<Preparation> start(LeasePath& leases, int domain, CallSite site,
                                            const Request& request, Error& error);
  /// Cancels it if it is under way, and returns the leases.
  ~Preparation();
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  State state() const;
  /// Waits for its end; false: `timeout` is over (kNever: none).
  bool wait(Duration timeout) const;
  /// One that has ended stays as it is.
  void cancel() { stop_.store(true, std::memory_order_relaxed); }
  /// The process that it began in. In a child of it only this may be called.
  pid_t process() const { return leases_.process(); }

  /// Cancels all that are under way, and waits for their threads.
  static void end_all();
  static void forget_after_fork();

 private:
  struct Piece {
    Range pages;
    Transfer transfer;
    bool leased = false;
  };

  Preparation(LeasePath& leases, int domain, CallSite site, const Request& request);
  Error check_room() const;
  bool launch(unsigned threads);
  void begin();
  void join();
  void work();
  Error prepare(ThreadContext& thread, Piece& piece);
  Error fault_in_steps(Range pages);
  void give_way() const;
  void finish(ThreadContext* thread, const Error& error);
  void roll_back(ThreadContext& thread);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  LeasePath& leases_;
  const int domain_;
  const CallSite site_;
  const Access access_;
  const bool faults_for_writing_;
  const Time began_;
  std::uint64_t bytes_ = 0;
  std::vector<Piece> pieces_;  ///< each is of the thread that took it; after the end, of ~Preparation()
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> prepared_{0};
  std::atomic<bool> stop_{false};
  Mutex joining_;
  std::vector<std::thread> threads_ GUARDED_BY(joining_);
  mutable Mutex mutex_;
  mutable ConditionVariable ended_;
  unsigned active_ GUARDED_BY(mutex_) = 0;  ///< threads
  bool over_ GUARDED_BY(mutex_) = false;
  Error error_ GUARDED_BY(mutex_);  ///< why it is not ready
  Time end_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinion
