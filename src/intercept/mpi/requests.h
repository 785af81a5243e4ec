// The holdings of outstanding requests: the operations of nonblocking calls until they complete, and the
// buffers of persistent requests for each start. Requests are known by their handle as a number (key_of() in
// abi.h). Any thread, outside of hooks.
//
// A handle has one place. Its operation lives there while it is the only one; that takes no mutex and no
// allocation. All else is listed, behind a mutex: further operations of the handle, those of other handles
// with this place, and buffers of persistent requests. A place is filled only where no entry with it is
// listed. So a handle's operation in its place is older than those listed.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"
#include "intercept/mpi/operation.h"
#include "lease/lease.h"

namespace pinion::mpi {

class Requests {
 public:
  using Key = std::uintptr_t;
  static Requests& instance() {
    static auto* requests =
        new Requests;  // never destroyed: threads may complete requests while the process exits
    return *requests;
  }

  /// The first check of every completion: whether any request was ever known. Programs poll for small
  /// messages as fast as the processor can, and many have only such.
  static bool any_known() { return any_known_.load(std::memory_order_acquire); }
  /// The second check, for each request, lock-free. False: it is unknown.
  static bool may_know(Key request) {
    const Place& place = places_[place_of(request)];
    return place.mark.load(std::memory_order_acquire) == mark_of(request) ||
           place.listed.load(std::memory_order_acquire) != 0;
  }

  /// Keeps the operation that `fill(Operation&)` makes until its request completes. One handle may hold
  /// several: an MPI may return a shared one for all operations that were complete at once. It may also give
  /// a completed request's handle to another thread before complete() is called for it.
  template <class Fill>
  void hold(Key request, Fill fill) {
    const std::size_t at = place_of(request);
    Place& place = places_[at];
    if (place.listed.load(std::memory_order_acquire) != 0 || !take(place, kEmpty)) [[unlikely]]
      return list(request, fill);
    fill(operations_[at]);
    place.mark.store(mark_of(request), std::memory_order_release);
    note_any();
  }
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
  struct Place {
    std::atomic<Key> mark;              ///< of the request whose operation is here
    std::atomic<std::uint32_t> listed;  ///< handles of this place that are listed
  };
  static constexpr std::size_t kPlaceBits = 8, kPlaces = std::size_t{1} << kPlaceBits;
  // No handle is of all ones, or of all ones but the last.
  static constexpr Key kEmpty = 0, kTaken = 1;
  static Key mark_of(Key request) { return ~request; }
  static std::uint64_t mixed(Key request) { return request * 0x9E3779B97F4A7C15ull; }
  static std::size_t place_of(Key request) { return mixed(request) >> (64 - kPlaceBits); }

  struct Entry {
    std::vector<Operation> operations;  ///< oldest first; seldom more than one
    std::shared_ptr<const Remembered> remembered;
  };
  struct Shard {
    Mutex mutex;
    std::unordered_map<Key, Entry> entries GUARDED_BY(mutex);
  };
  Shard& shard_of(Key request) { return shards_[mixed(request) >> 60]; }
  Entry& entry_of(Shard& shard, Key request) REQUIRES(shard.mutex);
  void forget_if_unused(Shard& shard, Key request, const Entry& entry) REQUIRES(shard.mutex);

  /// True: the place had this mark, and its operation is the caller's until it sets another one.
  static bool take(Place& place, Key mark) {
    return place.mark.load(std::memory_order_relaxed) == mark &&
           place.mark.compare_exchange_strong(mark, kTaken, std::memory_order_acquire);
  }
  static void note_any() {
    if (!any_known()) [[unlikely]]
      any_known_.store(true, std::memory_order_release);
  }
  template <class Fill>
  [[gnu::noinline]] void list(Key request, Fill fill) {
    Operation operation;
    fill(operation);
    list(request, std::move(operation));
  }
  void list(Key request, Operation&& operation);
  void complete_listed(ThreadContext& thread, LeasePath& leases, Key request, std::int64_t arrived);

  std::array<Operation, kPlaces> operations_;  ///< of the places
  std::array<Shard, 16> shards_;
  // Static: completions of small messages read only these.
  static constinit std::atomic<bool> any_known_;
  static constinit std::array<Place, kPlaces> places_;
};

}  // namespace pinion::mpi
