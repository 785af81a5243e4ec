#include "intercept/mpi/holdings.h"

#include <algorithm>

namespace pinion::mpi {

// Never destroyed: threads may be in MPI calls while the process exits.
Holdings& Holdings::windows() {
  static auto* holdings = new Holdings;
  return *holdings;
}
Holdings& Holdings::origins() {
  static auto* holdings = new Holdings;
  return *holdings;
}
Holdings& Holdings::files() {
  static auto* holdings = new Holdings;
  return *holdings;
}

void Holdings::hold(Key object, std::uint64_t part, const Transfer& lease) {
  const MutexLock lock(mutex_);
  objects_[object].push_back({part, lease});
  held_.fetch_add(1, std::memory_order_release);
}

void Holdings::release(ThreadContext& thread, LeasePath& leases, Key object, std::uint64_t part) {
  std::vector<Lease> ended;
  {
    const MutexLock lock(mutex_);
    const auto at = objects_.find(object);
    if (at == objects_.end()) return;
    std::vector<Lease>& held = at->second;
    const auto is_other = [part](const Lease& lease) { return lease.part != part; };
    const auto others_end = std::stable_partition(held.begin(), held.end(), is_other);
    ended.assign(others_end, held.end());
    held.erase(others_end, held.end());
    if (held.empty()) objects_.erase(at);
    held_.fetch_sub(ended.size(), std::memory_order_release);
  }
  for (Lease& lease : ended) leases.release(thread, lease.transfer);
}

void Holdings::release(ThreadContext& thread, LeasePath& leases, Key object) {
  std::vector<Lease> ended;
  {
    const MutexLock lock(mutex_);
    const auto at = objects_.find(object);
    if (at == objects_.end()) return;
    ended = std::move(at->second);
    objects_.erase(at);
    held_.fetch_sub(ended.size(), std::memory_order_release);
  }
  for (Lease& lease : ended) leases.release(thread, lease.transfer);
}

void Holdings::release_all(ThreadContext& thread, LeasePath& leases) {
  const MutexLock lock(mutex_);
  for (auto& [object, held] : objects_)
    for (Lease& lease : held) leases.release(thread, lease.transfer);
  objects_.clear();
  held_.store(0, std::memory_order_release);
}

}  // namespace pinion::mpi
