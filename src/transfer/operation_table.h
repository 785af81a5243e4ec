// The operations that the provider has, and the wire buffers of those that are messages. A slot is the
// provider's until its completion arrives, also when its operation has ended early because its peer is gone:
// such a slot is only reused after the provider has let go of it.
//
// Any thread; guarded by its mutex, under which nothing of a provider is called.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fabric.h>

#include <deque>
#include <mutex>
#include <optional>
#include <vector>

#include "transfer/endpoint.h"
#include "transfer/wire_pool.h"

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
  WireBuffer* wire = nullptr;               ///< of a message
  std::optional<std::uint64_t> mapped_key;  ///< of a raw one
};

class OperationTable {
 public:
  OperationTable() { make_slots(kFirst); }
  /// Null: too many are under way, or there is no memory for one more.
  OperationSlot* take(Peer peer, Operation* operation);
  /// The provider has completed it, or has refused it. Returns the operation that waits, or null.
  /// `abandoned` (may be null) receives whether it has been done() early.
  Operation* finish(OperationSlot& slot, bool* abandoned = nullptr);
  enum class Kinds : unsigned char { all, without_gets };
  /// The operations to a peer that wait, or all; the caller calls their done().
  std::vector<Operation*> abandon(Peer peer, Kinds kinds = Kinds::all);
  std::vector<Operation*> abandon_all();
  /// Under way, and not abandoned.
  std::size_t live() const;
  bool has_any(Peer peer) const;

  static constexpr std::size_t kMost = 4096;

 private:
  /// So that without memory operations wait for others at most.
  static constexpr std::size_t kFirst = 64;

  void make_slots(std::size_t count);
  template <class Chosen>
  std::vector<Operation*> abandon_where(Chosen&& chosen);

  mutable std::mutex mutex_;  ///< guards all below, and the slots
  std::deque<OperationSlot> slots_;
  std::vector<OperationSlot*> free_;  ///< with room for all
  std::size_t live_ = 0;
};

}  // namespace pinion::transfer
#endif
