#include "intercept/mpi/freed_requests.h"

namespace pinion::mpi {

FreedRequests& FreedRequests::instance() {
  static auto* requests = new FreedRequests;  // never destroyed: threads may look while the process exits
  return *requests;
}

void FreedRequests::keep(ThreadContext& thread, LeasePath& leases, Operation&& operation) {
  const MutexLock lock(mutex_);
  freed_.push_back(std::move(operation));
  if (freed_.size() > kMost) {
    freed_.front().complete(thread, leases);
    freed_.pop_front();
  }
  kept_.store(freed_.size(), std::memory_order_relaxed);
}

void FreedRequests::release_gone(ThreadContext& thread, LeasePath& leases) {
  if (!mutex_.try_lock()) return;  // another thread does it
  const MutexLock lock(mutex_, std::adopt_lock);
  std::erase_if(freed_, [&](Operation& operation) {
    if (!operation.memory_is_gone()) return false;
    operation.complete(thread, leases);
    return true;
  });
  kept_.store(freed_.size(), std::memory_order_relaxed);
}

void FreedRequests::finish(ThreadContext& thread, LeasePath& leases) {
  const MutexLock lock(mutex_);
  for (Operation& operation : freed_) operation.complete(thread, leases);
  freed_.clear();
  kept_.store(0, std::memory_order_relaxed);
}

}  // namespace pinion::mpi
