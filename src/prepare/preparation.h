// Memory that is registered ahead of its first transfer, by threads of its own: whole heaps, in pieces. Owns
// the leases on the pieces, from the time when a piece is registered to its end; a failure or a cancel rolls
// all of it back. A part is faulted in by short steps (fault_pace.h); a piece whose parts are all present is
// leased as for a transfer. The number of threads and the size of pieces follow the measured throughput
// (preparation_speed.h). Between the steps a thread lets transfers that wait for a registration go first.
//
// Its threads run on any CPU that the process may use, and place memory by the caller's NUMA policy.
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
#include "device/kernel/memory_policy.h"
#include "lease/lease.h"
#include "node/cores.h"
#include "prepare/fault_pace.h"
#include "prepare/preparation_crew.h"
#include "prepare/preparation_pieces.h"
#include "prepare/preparation_speed.h"

namespace pinion {

class Preparation {
 public:
  struct Request {
    std::vector<Range> ranges;
    Access access = Access::read;
    bool hugepages = false;       ///< advises the kernel to use them
    unsigned threads = 0;         ///< at most, and at first; 0: as many as help, of the process's cores
    std::size_t piece_bytes = 0;  ///< of one registration, at most; 0: 16 MiB, larger where that is faster
    bool registers = true;        ///< false: the memory is faulted in alone
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
  /// Rolls those of a run back, because the process was asked to keep nothing. One that is under way does it
  /// itself. Called again and again: one may have begun meanwhile.
  static void let_all_go(const LeasePath& leases);
  static void forget_after_fork();

 private:
  /// The CPUs of its threads, and the policy by which their faults choose memory.
  struct Place {
    node::CpuSet cpus;
    MemoryPolicy policy;
  };

  Preparation(LeasePath& leases, int domain, CallSite site, const Request& request);
  /// Checks that the limit can hold the ranges, before anything is done with them.
  static Error check_room(const LeasePath& leases, const std::vector<Range>& ranges);
  bool launch(unsigned threads);
  void join();
  void work();
  bool leaves();
  void follow(unsigned threads);
  Error prepare(ThreadContext& thread, FaultPace& pace, const PreparationPieces::Part& part);
  Error fault_in(FaultPace& pace, Range pages);
  Error register_piece(ThreadContext& thread, PreparationPieces::Piece& piece);
  void worked(std::size_t bytes);
  void give_way() const;
  void finish(ThreadContext* thread, const Error& error);
  void end_launch();
  void end(ThreadContext* thread);
  void roll_back(ThreadContext& thread);
  static Preparation* next_to_let_go(const LeasePath& leases);
  bool begin_to_let_go();
  void let_go(ThreadContext& thread);
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }

  LeasePath& leases_;
  const int domain_;
  const CallSite site_;
  const Access access_;
  const bool faults_for_writing_;
  const bool registers_;
  const Time began_;
  const Place place_;
  PreparationPieces pieces_;  ///< after the end, of ~Preparation()
  PreparationSpeed speed_;
  std::atomic<std::uint64_t> prepared_{0};
  std::atomic<bool> stop_{false};
  Mutex joining_;
  std::vector<std::thread> threads_ GUARDED_BY(joining_);
  mutable Mutex mutex_;
  mutable ConditionVariable ended_;
  PreparationCrew crew_ GUARDED_BY(mutex_);
  bool over_ GUARDED_BY(mutex_) = false;
  bool going_ GUARDED_BY(mutex_) = false;  ///< let_all_go() rolls it back
  Error error_ GUARDED_BY(mutex_);         ///< why it is not ready
  Time end_ GUARDED_BY(mutex_) = 0;
};

}  // namespace pinion
