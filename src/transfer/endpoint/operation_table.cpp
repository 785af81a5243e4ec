#include "transfer/endpoint/operation_table.h"

#ifdef PINION_HAS_LIBFABRIC
#include <new>
#include <utility>

namespace pinion::transfer {

void OperationTable::make_slots(std::size_t count) {
  free_.reserve(slots_.size() + count);
  for (std::size_t i = 0; i < count; ++i) free_.push_back(&slots_.emplace_back());
}

OperationSlot* OperationTable::take(Peer peer, Operation* operation) {
  const MutexLock lock(mutex_);
  if (live_ == kMost) return nullptr;
  try {
    if (free_.empty()) make_slots(slots_.size());
  } catch (const std::bad_alloc&) {
    if (free_.empty()) return nullptr;
  }
  OperationSlot& slot = *free_.back();
  free_.pop_back();
  slot.operation = operation;
  slot.peer = peer;
  slot.used = true;
  slot.abandoned = false;
  slot.gets = false;
  slot.wire = nullptr;
  ++live_;
  return &slot;
}

/// It is free again. Returns the operation that waits, or null.
Operation* OperationTable::release(OperationSlot& slot) {
  if (!slot.abandoned) --live_;
  slot.used = false;
  free_.push_back(&slot);
  return std::exchange(slot.operation, nullptr);
}

Operation* OperationTable::finish(OperationSlot& slot, bool* abandoned) {
  const MutexLock lock(mutex_);
  if (abandoned != nullptr) *abandoned = slot.abandoned;
  return release(slot);
}

void OperationTable::end_later(OperationSlot& slot, int code, Time due) {
  const MutexLock lock(mutex_);
  if (slot.operation == nullptr) {
    release(slot);
    return;
  }
  slot.code = code;
  slot.due = due;
  slot.next_ending = std::exchange(ending_, &slot);
  endings_.fetch_add(1, std::memory_order_release);
}

/// The next one from that slot on; `from` then names the slot behind it.
Operation* OperationTable::abandon_next(std::size_t& from, std::optional<Peer> peer, Kinds kinds) {
  const MutexLock lock(mutex_);
  while (from < slots_.size()) {
    OperationSlot& slot = slots_[from++];
    if (!slot.used || slot.abandoned || (peer && slot.peer != *peer) ||
        (kinds == Kinds::without_gets && slot.gets))
      continue;
    slot.abandoned = true;
    --live_;
    if (slot.operation != nullptr) return std::exchange(slot.operation, nullptr);
  }
  return nullptr;
}

std::size_t OperationTable::live() const {
  const MutexLock lock(mutex_);
  return live_;
}

}  // namespace pinion::transfer
#endif
