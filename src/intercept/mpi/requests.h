// The holdings of outstanding requests: the operations of nonblocking calls until they complete, and the
// buffers of persistent requests for each start. Requests are known by their handle as a number (key_of() in
// abi.h). Any thread; a mutex a shard. Never from hooks.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "engine/lease_path.h"
#include "intercept/mpi/operation.h"

namespace pinion::mpi {

class Requests {
 public:
  using Key = std::uintptr_t;
  static Requests& instance();

  /// The first check of every completion, lock-free: whether any request is known at all. Programs
  /// poll for small messages as fast as the processor can, mostly with only small ones under way.
  static bool any_known() { return entries_known_.load(std::memory_order_acquire) != 0; }
  /// The second check, for each request. False: it is unknown.
  static bool may_know(Key request) {
    return known_[filter_of(request)].load(std::memory_order_acquire) != 0;
  }

  /// Keeps the operation until its request completes. One handle may hold several: an MPI may return a shared
  /// one for all operations that were complete at once. It may also give a completed request's handle to
  /// another thread before complete() is called for it.
  void hold(Key request, Operation&& operation);
  void remember(Key request, Remembered remembered);
  /// The buffers of a persistent request; null where it is unknown.
  std::shared_ptr<const Remembered> find(Key request);

  /// The oldest operation of the handle is complete.
  void complete(ThreadContext& thread, LeasePath& leases, Key request, std::int64_t arrived = -1);
  /// The program frees the request: its buffers are forgotten. Its operation may go on: the newest one
  /// of the handle is taken out and returned, empty when there is none.
  Operation take_freed(Key request);
  void release_all(ThreadContext& thread, LeasePath& leases);

 private:
  struct Entry {
    std::vector<Operation> operations;  ///< oldest first; seldom more than one
    std::shared_ptr<const Remembered> remembered;
  };
  struct Shard {
    Mutex mutex;
    std::unordered_map<Key, Entry> entries GUARDED_BY(mutex);
  };
  static std::uint64_t mixed(Key request) { return request * 0x9E3779B97F4A7C15ull; }
  static std::size_t filter_of(Key request) { return mixed(request) >> 54; }
  Shard& shard_of(Key request) { return shards_[mixed(request) >> 60]; }
  Entry& entry_of(Shard& shard, Key request) REQUIRES(shard.mutex);
  void forget_if_unused(Shard& shard, Key request, const Entry& entry) REQUIRES(shard.mutex);
  static void count(Key request, std::int32_t by) {
    known_[filter_of(request)].fetch_add(static_cast<std::uint32_t>(by), std::memory_order_release);
    entries_known_.fetch_add(static_cast<std::uint32_t>(by), std::memory_order_release);
  }

  std::array<Shard, 16> shards_;
  /// Handles in the tables: all, and by filter_of(). Static: completions of small messages read only these.
  static constinit std::atomic<std::uint32_t> entries_known_;
  static constinit std::array<std::atomic<std::uint32_t>, 1024> known_;
};

}  // namespace pinion::mpi
