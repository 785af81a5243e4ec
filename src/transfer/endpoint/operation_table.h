// The operations that the provider has, and the wire buffers of those that are messages. A slot is the
// provider's until its completion arrives, also when its operation has ended early because its peer is gone:
// such a slot is only reused after the provider has let go of it.
//
// take() alone allocates. An operation that has begun ends without further memory: one that ends later than
// the provider lets go of it keeps its slot until then.
//
// Any thread; guarded by its mutex, under which nothing of a provider or of the operations' owners is called.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fabric.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "transfer/endpoint/endpoint.h"
#include "transfer/endpoint/wire_pool.h"

namespace pinion::transfer {

/// Names an operation of the provider, as it gives it back in its completion.
struct Context {
  fi_context2 providers{};  ///< first: a provider may write here (FI_CONTEXT2)
  enum class Kind : unsigned char { operation, receive } kind = Kind::operation;
};

struct OperationSlot : Context {
  Operation* operation = nullptr;  ///< null: none waits for it
  Peer peer = 0;
  bool used = false;
  bool abandoned = false;                   ///< done() was called early
  bool gets = false;                        ///< writes this process's memory
  WireBuffer* wire = nullptr;               ///< a message's
  std::optional<std::uint64_t> mapped_key;  ///< a raw key's
  // Of one that ends later.
  int code = 0;  ///< libfabric's
  Time due = 0;
  OperationSlot* next_ending = nullptr;
};

class OperationTable {
 public:
  OperationTable() { make_slots(kFirst); }
  /// Null: too many are under way, or there is no memory for one more.
  OperationSlot* take(Peer peer, Operation* operation);
  /// The provider has completed it, or has refused it. Returns the operation that waits, or null.
  /// `abandoned` (may be null) receives whether it has been done() early.
  Operation* finish(OperationSlot& slot, bool* abandoned = nullptr);
  /// Instead of finish(): its operation ends at `due`, by that code, or once its peer is gone.
  void end_later(OperationSlot& slot, int code, Time due);
  struct Ending {
    Operation* operation = nullptr;  ///< null: there is none
    Peer peer = 0;
    int code = 0;
  };
  /// The next of those for which `is_due(peer, due)`. The caller calls its done().
  template <class IsDue>
  Ending take_ending(IsDue&& is_due);

  enum class Kinds : unsigned char { all, without_gets };
  /// f(Operation&) for each operation to a peer that waits, or for all; f calls its done().
  template <class F>
  void abandon(Peer peer, Kinds kinds, F&& f) {
    std::size_t from = 0;
    while (Operation* const operation = abandon_next(from, peer, kinds)) f(*operation);
  }
  template <class F>
  void abandon_all(F&& f) {
    std::size_t from = 0;
    while (Operation* const operation = abandon_next(from, {}, Kinds::all)) f(*operation);
  }
  /// Under way, and not abandoned.
  std::size_t live() const;

  static constexpr std::size_t kMost = 4096;

 private:
  /// Slots from the beginning: without memory, operations wait for others at most.
  static constexpr std::size_t kFirst = 64;

  void make_slots(std::size_t count);
  Operation* release(OperationSlot& slot);
  Operation* abandon_next(std::size_t& from, std::optional<Peer> peer, Kinds kinds);

  std::atomic<unsigned> endings_{0};
  mutable std::mutex mutex_;  ///< guards all below, and the slots
  std::deque<OperationSlot> slots_;
  std::vector<OperationSlot*> free_;  ///< with room for all
  OperationSlot* ending_ = nullptr;   ///< the first
  std::size_t live_ = 0;
};

template <class IsDue>
OperationTable::Ending OperationTable::take_ending(IsDue&& is_due) {
  if (endings_.load(std::memory_order_acquire) == 0) return {};
  const std::lock_guard lock(mutex_);
  for (OperationSlot** at = &ending_; *at != nullptr;) {
    OperationSlot& slot = **at;
    if (!slot.abandoned && !is_due(slot.peer, slot.due)) {
      at = &slot.next_ending;
      continue;
    }
    *at = slot.next_ending;
    endings_.fetch_sub(1, std::memory_order_release);
    if (Operation* const operation = release(slot)) return {operation, slot.peer, slot.code};
  }
  return {};
}

}  // namespace pinion::transfer
#endif
