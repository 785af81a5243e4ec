#include "intercept/cuda/buffer_history.h"

#include "base/mix.h"

namespace pinion::cuda {

namespace {
constexpr unsigned kFirstRegistered = 3;
}  // namespace

bool BufferHistory::used(Range range) {
  Slot& slot = slot_of(range);
  constexpr auto relaxed = std::memory_order_relaxed;
  if (slot.begin.load(relaxed) == range.begin && slot.end.load(relaxed) == range.end)
    return slot.uses.fetch_add(1, relaxed) + 1 >= slot.registered_at.load(relaxed);
  slot.end.store(0, relaxed);
  slot.begin.store(range.begin, relaxed);
  slot.uses.store(1, relaxed);
  slot.registered_at.store(kFirstRegistered, relaxed);
  slot.end.store(range.end, relaxed);
  return false;
}

void BufferHistory::registered(Range range) {
  Slot& slot = slot_of(range);
  constexpr auto relaxed = std::memory_order_relaxed;
  if (slot.begin.load(relaxed) == range.begin) slot.registered_at.store(2 * slot.uses.load(relaxed), relaxed);
}

BufferHistory::Slot& BufferHistory::slot_of(Range range) {
  return slots_[mix(0, range.begin) % slots_.size()];
}

Answer BufferHistory::changing(const MemoryChange& change) {
  if (change.kind != ChangeKind::rights) forget(change.range);
  return Answer::proceed;
}

void BufferHistory::forget(Range range) {
  constexpr auto relaxed = std::memory_order_relaxed;
  for (Slot& slot : slots_)
    if (range.overlaps({slot.begin.load(relaxed), slot.end.load(relaxed)})) slot.end.store(0, relaxed);
}

}  // namespace pinion::cuda
