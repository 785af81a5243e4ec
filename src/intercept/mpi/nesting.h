// MPI_X and PMPI_X are both intercepted, an MPI may call one from the other, and file operations may make
// transfers of their own: only the outermost call of a thread counts. Lives in the wrapper's frame.
#pragma once

#include "engine/lease_path.h"

namespace pinion::mpi {

class Nesting {
 public:
  Nesting() = default;
  ~Nesting() {
    if (thread_) --thread_->depth;
  }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  /// False where this call passes by: inside another one, or while the engine is stopped. Further calls
  /// return the same.
  bool enter() { return thread_ || enter(this_thread()); }
  /// enter(), free of calls: false also for a thread that makes its first call.
  bool enter_quickly() { return thread_ || enter(known_thread()); }
  LeasePath& lease_path() const { return *path_; }
  ThreadContext& thread() const { return *thread_; }

 private:
  bool enter(ThreadContext* thread) {
    path_ = LeasePath::running();
    if (!path_ || !thread || thread->depth != 0) return false;
    ++thread->depth;
    thread_ = thread;
    return true;
  }

  LeasePath* path_ = nullptr;
  ThreadContext* thread_ = nullptr;
};

}  // namespace pinion::mpi
