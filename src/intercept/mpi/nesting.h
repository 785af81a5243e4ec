// MPI_X and PMPI_X are both intercepted, an MPI may call one from the other, and file operations may make
// transfers of their own: only the outermost call of a thread counts. A call that a jump has left counts no
// more (monitor/open_frame.h). Lives in the wrapper's frame.
#pragma once

#include "lease/lease.h"
#include "monitor/open_frame.h"

namespace pinion::mpi {

/// The outermost call that the thread is in.
[[gnu::tls_model("initial-exec")]] inline constinit thread_local const void* t_call = nullptr;

/// Returns the leases of a call that the thread has left by a jump.
void end_call_left_behind(ThreadContext& thread);

class Nesting {
 public:
  Nesting() = default;
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

  /// False where this call passes by: inside another one, or while the engine is stopped. Further calls
  /// return the same.
  bool enter() { return thread_ || enter(this_thread()); }
  /// enter(), free of calls: false also for a thread that makes its first call.
  bool enter_quickly() { return thread_ || enter(known_thread()); }
  /// Whether this is still the thread's outermost call: one on another stack may have taken it for left.
  bool holds() const { return t_call == &frame_; }
  LeasePath& lease_path() const { return *path_; }
  ThreadContext& thread() const { return *thread_; }

 private:
  bool enter(ThreadContext* thread) {
    path_ = LeasePath::running();
    if (!path_ || !thread) return false;
    const OpenFrame::Opened opened = frame_.open(t_call);
    if (opened == OpenFrame::Opened::inside) [[unlikely]]
      return false;
    if (opened == OpenFrame::Opened::after_a_jump) [[unlikely]]
      end_call_left_behind(*thread);
    thread_ = thread;
    return true;
  }

  OpenFrame frame_;
  LeasePath* path_ = nullptr;
  ThreadContext* thread_ = nullptr;
};

}  // namespace pinion::mpi
