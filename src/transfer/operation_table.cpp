#include "transfer/operation_table.h"

#ifdef PINION_HAS_LIBFABRIC
#include <algorithm>
#include <new>
#include <utility>

namespace pinion::transfer {

void OperationTable::make_slots(std::size_t count) {
  free_.reserve(slots_.size() + count);
  for (std::size_t i = 0; i < count; ++i) free_.push_back(&slots_.emplace_back());
}

OperationSlot* OperationTable::take(Peer peer, Operation* operation) {
  const std::lock_guard lock(mutex_);
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

Operation* OperationTable::finish(OperationSlot& slot, bool* abandoned) {
  const std::lock_guard lock(mutex_);
  if (abandoned != nullptr) *abandoned = slot.abandoned;
  if (!slot.abandoned) --live_;
  slot.used = false;
  free_.push_back(&slot);
  return std::exchange(slot.operation, nullptr);
}

template <class Chosen>
std::vector<Operation*> OperationTable::abandon_where(Chosen&& chosen) {
  std::vector<Operation*> waiting;
  const std::lock_guard lock(mutex_);
  waiting.reserve(live_);
  for (OperationSlot& slot : slots_) {
    if (!slot.used || slot.abandoned || !chosen(slot)) continue;
    slot.abandoned = true;
    --live_;
    if (slot.operation != nullptr) waiting.push_back(std::exchange(slot.operation, nullptr));
  }
  return waiting;
}

std::vector<Operation*> OperationTable::abandon(Peer peer, Kinds kinds) {
  return abandon_where(
      [&](const OperationSlot& slot) { return slot.peer == peer && (kinds == Kinds::all || !slot.gets); });
}

std::vector<Operation*> OperationTable::abandon_all() {
  return abandon_where([](const OperationSlot&) { return true; });
}

std::size_t OperationTable::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

bool OperationTable::has_any(Peer peer) const {
  const std::lock_guard lock(mutex_);
  return std::any_of(slots_.begin(), slots_.end(), [&](const OperationSlot& slot) {
    return slot.used && !slot.abandoned && slot.peer == peer;
  });
}

}  // namespace pinion::transfer
#endif
