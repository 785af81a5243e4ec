// Sleeping until a completion queue has something: by the queue's descriptor where the provider has one, else
// by short sleeps that grow with the silence. One thread polls the descriptor; others sleep until it, or
// the thread that read the queue, wakes them. All leave the core to processes that need it.
//
// Any thread. The queue outlives it.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_eq.h>

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/kept_file.h"

namespace pinion::transfer {

class QueueWait {
 public:
  QueueWait();
  /// Comes before all else. Without a descriptor (negative) it sleeps by time.
  void watch(fid_fabric* fabric, fid_cq* queue, int descriptor);

  /// An operation begins: its completion is near.
  void busy() { last_.store(monotonic_now(), std::memory_order_relaxed); }
  /// Something was done: wakes all.
  void advanced();
  /// Returns at once if advanced() was called since this thread's last wait(), so no wake-up is lost.
  void wait(Duration at_most);
  /// The number of threads that wait.
  unsigned waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  bool seen();
  void poll_until(Time until);
  void sleep_until(Time until);

  fid_fabric* fabric_ = nullptr;
  fid_cq* queue_ = nullptr;
  int descriptor_ = -1;
  const std::uint64_t serial_;  ///< names this object in a thread's list of states seen
  KeptFile bell_;               ///< an eventfd that interrupts poll()
  std::atomic<std::uint32_t> epoch_{0};
  std::atomic<unsigned> waiting_{0}, sleeping_{0};
  std::atomic<bool> polling_{false};
  std::atomic<Time> last_{0};
};

}  // namespace pinion::transfer
#endif
