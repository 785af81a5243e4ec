// Fixed-size objects in memory that stays mapped to the end, so that lock-free readers may look
// at an object that has been recycled. Memory comes from mmap, so that growing a slab stays clear of
// allocator hooks. It grows in chunks that double up to a huge page: few objects cost little, and lookups
// among very many avoid misses of the page table. take() and put() are guarded by the owner's lock; growing
// may be done ahead by reserve(), outside any spin lock.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>

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
  static constexpr std::size_t kHugePage = std::size_t{1} << 21;
  static_assert(sizeof(T) <= kFirstChunk);

  bool map_chunk() {
    // A huge page must lie at a multiple of its size: twice as many addresses hold one. Only touched pages
    // get memory.
    const bool huge = chunk_ == kHugePage;
    const std::size_t bytes = huge ? 2 * chunk_ : chunk_;
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    // Records keep 48 bits of a pointer. The kernel maps above them only where it is asked to.
    if (reinterpret_cast<std::uintptr_t>(memory) + bytes > std::uintptr_t{1} << 48) return false;
    auto begin = reinterpret_cast<std::uintptr_t>(memory);
    if (huge) {
      begin = (begin + kHugePage - 1) & ~(std::uintptr_t{kHugePage} - 1);
#ifdef MADV_HUGEPAGE
      ::madvise(reinterpret_cast<void*>(begin), kHugePage, MADV_HUGEPAGE);
#endif
    }
    next_ = reinterpret_cast<std::byte*>(begin);
    unused_ = chunk_ / sizeof(T);
    bytes_ += chunk_;
    chunk_ = std::min(2 * chunk_, kHugePage);
    return true;
  }

  T* free_ = nullptr;
  std::size_t available_ = 0;
  std::byte* next_ = nullptr;  // of the newest chunk: memory that was never an object
  std::size_t unused_ = 0;
  std::size_t chunk_ = kFirstChunk;
  std::size_t bytes_ = 0;
};

}  // namespace pinion
