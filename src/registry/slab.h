// Fixed-size objects in memory that stays mapped to the end, so that lock-free readers may look
// at an object that has been recycled. Memory comes from mmap, so that growing a slab stays clear of
// allocator hooks. It grows in chunks that double up to a huge page: few objects cost little, and lookups
// among very many avoid misses of the page table. take() and put() are guarded by the owner's lock; growing
// may be done ahead by reserve(), outside any spin lock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <new>

#include "registry/kept_memory.h"

namespace pinion {

/// T needs a member `T* next_free`.
template <class T>
class Slab {
 public:
  /// Allocates ahead for the next `count` take() calls. False: the system gives none.
  bool reserve(std::size_t count) {
    while (available_ < count) {
      if (unused_ == 0 && !map_chunk()) return false;
      put(new (next_) T);
      next_ += sizeof(T);
      --unused_;
      if (!hugepage_) bytes_ += sizeof(T);
    }
    return true;
  }

  /// After reserve(): an object in the state that its last user left it in.
  T* take() {
    if (!free_) return nullptr;
    T* object = free_;
    free_ = object->next_free;
    --available_;
    return object;
  }
  void put(T* object) {
    object->next_free = free_;
    free_ = object;
    ++available_;
  }

  /// Memory taken from the system.
  std::size_t bytes() const { return bytes_; }

 private:
  static constexpr std::size_t kFirstChunk = std::size_t{1} << 16;
  static_assert(sizeof(T) <= kFirstChunk);

  bool map_chunk() {
    next_ = map_kept(chunk_);
    if (!next_) return false;
    unused_ = chunk_ / sizeof(T);
    hugepage_ = chunk_ == kKeptHugePage;
    if (hugepage_) bytes_ += chunk_;
    chunk_ = std::min(2 * chunk_, kKeptHugePage);
    return true;
  }

  T* free_ = nullptr;
  std::size_t available_ = 0;
  std::byte* next_ = nullptr;  // of the newest chunk: memory that was never an object
  std::size_t unused_ = 0;
  bool hugepage_ = false;  // the newest chunk: it takes all its memory at once
  std::size_t chunk_ = kFirstChunk;
  std::size_t bytes_ = 0;
};

}  // namespace pinion
