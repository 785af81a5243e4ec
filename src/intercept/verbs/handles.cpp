#include "intercept/verbs/handles.h"

#include <sys/mman.h>

#include <new>

namespace pinion::verbs {

namespace {

/// Begins at a multiple of its size; 0 where the system has no memory.
Address map_aligned(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<Address>(memory);
  const Address aligned = (begin + bytes - 1) / bytes * bytes;
  const Address end = begin + 2 * bytes;
  if (aligned > begin) ::munmap(memory, aligned - begin);
  if (end > aligned + bytes) ::munmap(reinterpret_cast<void*>(aligned + bytes), end - (aligned + bytes));
  return aligned;
}

}  // namespace

Handles& Handles::instance() {
  static constinit Handles all;
  return all;
}

Handle* Handles::take() {
  const MutexLock lock(mutex_);
  if (free_ == nullptr && !grow()) return nullptr;
  Handle* const handle = free_;
  free_ = handle->next_free;
  return handle;
}

void Handles::put(Handle* handle) {
  const MutexLock lock(mutex_);
  handle->next_free = free_;
  free_ = handle;
}

Handle* Handles::find(const ibv_mr* mr) const {
  const auto address = reinterpret_cast<Address>(mr);
  const Address chunk = address / kChunkBytes * kChunkBytes;
  for (std::size_t place = place_of(chunk);; place = (place + 1) % kPlaces) {
    const Address there = chunks_[place].load(std::memory_order_acquire);
    if (there == 0) return nullptr;
    if (there != chunk) continue;
    const std::size_t offset = address - chunk;
    if (offset % sizeof(Handle) != 0 || offset / sizeof(Handle) >= kInChunk) return nullptr;
    return &handle_at(chunk, offset / sizeof(Handle));
  }
}

bool Handles::grow() {
  if (chunk_count_ == kPlaces / 2) return false;
  const Address chunk = map_aligned(kChunkBytes);
  if (chunk == 0) return false;
  ++chunk_count_;
  for (std::size_t i = kInChunk; i-- > 0;) {
    auto* const handle = new (reinterpret_cast<void*>(chunk + i * sizeof(Handle))) Handle;
    handle->next_free = free_;
    free_ = handle;
  }
  std::size_t place = place_of(chunk);
  while (chunks_[place].load(std::memory_order_relaxed) != 0) place = (place + 1) % kPlaces;
  chunks_[place].store(chunk, std::memory_order_release);
  return true;
}

}  // namespace pinion::verbs
