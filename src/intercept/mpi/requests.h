// What outstanding requests hold: the leases of nonblocking operations until they complete, and the buffers
// of persistent requests between their starts. Any thread; a mutex a shard. Never from hooks.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"

namespace pinion::mpi {

class Requests {
 public:
  static Requests& instance();

  /// A persistent request's buffer.
  struct Persistent {
    Range range{};
    Access access = Access::read;
    CallKind kind = CallKind::none;
    int peer = -1;
  };

  /// Nothing is held: what every completion asks first.
  bool empty() const { return held_.load(std::memory_order_acquire) == 0; }

  /// Keeps the lease until the request completes. One handle may hold several: an MPI may return a shared one
  /// for all operations that were complete at once, and may give a completed request's handle to another
  /// thread before complete() is called for it.
  void hold(MPI_Request request, const Transfer& transfer);
  void remember(MPI_Request request, const Persistent& persistent);
  /// The buffer of a persistent request; false when it is none of ours.
  bool find(MPI_Request request, Persistent& persistent);

  /// The operation is complete: the oldest lease of the handle is released.
  void complete(ThreadContext& thread, Engine& engine, MPI_Request request);
  /// The program frees the request; its operation may go on, so its lease, the newest of the handle, stays
  /// until the end of the run.
  void freed(MPI_Request request);
  void release_all();

 private:
  struct Entry {
    Transfer oldest;
    std::vector<Transfer> later;  ///< almost always empty
    Persistent persistent;
    bool is_persistent = false;
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_map<MPI_Request, Entry> entries;
  };
  void forget_if_unused(Shard& shard, MPI_Request request, const Entry& entry);
  Shard& shard(MPI_Request request) {
    return shards_[(reinterpret_cast<std::uintptr_t>(request) * 0x9E3779B97F4A7C15ull) >> 60];
  }

  std::array<Shard, 16> shards_;
  std::atomic<std::size_t> held_{0};
  std::mutex orphans_mutex_;
  std::vector<Transfer> orphans_;
};

}  // namespace pinion::mpi
