// Requests that the program freed while their operation was under way. MPI would complete them and tell
// nobody; so they are freed later: the front keeps the handle, asks from time to time, and returns the leases
// when the operation is complete. Any thread that may call MPI; one mutex.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "intercept/mpi/library.h"
#include "intercept/mpi/operation.h"

namespace pinion::mpi::PINION_MPI_ABI {

class FreedRequests {
 public:
  static FreedRequests& instance();

  void keep(Request request, bool persistent, Operation&& operation);
  /// Inside any MPI call of the program: what is complete by now is freed and released.
  void poll(ThreadContext& thread, Engine& engine) {
    if (kept_.load(std::memory_order_relaxed) > 0) look(thread, engine, false);
  }
  /// Before MPI is finalized or the program waits for its communicator to be quiet: all are freed and
  /// released.
  void finish(ThreadContext& thread, Engine& engine) {
    if (kept_.load(std::memory_order_relaxed) > 0) look(thread, engine, true);
  }

 private:
  struct Freed {
    Request request;
    bool persistent;
    Operation operation;
  };
  void look(ThreadContext& thread, Engine& engine, bool all);

  std::mutex mutex_;
  std::vector<Freed> freed_;
  std::atomic<std::size_t> kept_{0};
};

}  // namespace pinion::mpi::PINION_MPI_ABI
