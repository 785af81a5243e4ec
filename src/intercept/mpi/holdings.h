// Leases that belong to an MPI object instead of a request: the memory of windows, the origin buffers of
// one-sided operations until they are known to be complete, the buffers of split collective file operations.
// Each lease belongs to a part of its object (a target rank, the address of attached memory). Any thread; one
// mutex. Never from hooks.
#pragma once

#include <atomic>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "lease/lease.h"

namespace pinion::mpi {

class Holdings {
 public:
  using Key = std::uintptr_t;

  /// The leases for windows; for one-sided operations under way; for split file operations.
  static Holdings& windows();
  static Holdings& origins();
  static Holdings& files();

  /// Nothing is held. Every synchronisation checks this first.
  bool empty() const { return held_.load(std::memory_order_acquire) == 0; }
  void hold(Key object, std::uint64_t part, const Transfer& lease);
  void release(ThreadContext& thread, LeasePath& leases, Key object, std::uint64_t part);
  void release(ThreadContext& thread, LeasePath& leases, Key object);
  void release_all(ThreadContext& thread, LeasePath& leases);

 private:
  struct Lease {
    std::uint64_t part;
    Transfer transfer;
  };
  Mutex mutex_;
  std::unordered_map<Key, std::vector<Lease>> objects_ GUARDED_BY(mutex_);
  std::atomic<std::size_t> held_{0};
};

}  // namespace pinion::mpi
