#include "intercept/mpi/freed_requests.h"

namespace pinion::mpi::PINION_MPI_ABI {

FreedRequests& FreedRequests::instance() {
  static auto* requests = new FreedRequests;  // never destroyed: threads may look while the process exits
  return *requests;
}

void FreedRequests::keep(Request request, bool persistent, Operation&& operation) {
  std::lock_guard lock(mutex_);
  freed_.push_back({request, persistent, std::move(operation)});
  kept_.store(freed_.size(), std::memory_order_relaxed);
}

void FreedRequests::look(ThreadContext& thread, Engine& engine, bool all) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // another thread is looking
  std::erase_if(freed_, [&](Freed& freed) {
    int complete = 0;
    Status status;
    const bool failed = library().test(&freed.request, &complete, &status) != kSuccess;
    if (!complete && !failed && !all) return false;
    // A persistent one stays, inactive, when it is complete; one that is not complete yet MPI frees then.
    if (freed.request != library().request_null && (freed.persistent || !complete))
      library().request_free(&freed.request);
    freed.operation.complete(thread, engine);
    return true;
  });
  kept_.store(freed_.size(), std::memory_order_relaxed);
}

}  // namespace pinion::mpi::PINION_MPI_ABI
