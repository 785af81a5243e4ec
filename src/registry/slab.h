// Fixed-size objects in memory that is mapped once and never given back, so that lock-free readers may look
// at an object that has been recycled. Memory comes from mmap, not from malloc: growing a slab never runs
// allocator hooks. take() and put() are guarded by the owner's lock; growing may be done ahead by reserve(),
// outside any spin lock.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace pinion {

/// T needs a member `T* next_free`.
template <class T>
class Slab {
 public:
  /// Makes sure that the next `count` take() calls need no memory. False: the system gives none.
  bool reserve(std::size_t count) {
    while (available_ < count) {
      constexpr std::size_t kBytes = std::size_t{1} << 18;
      constexpr std::size_t kObjects = kBytes / sizeof(T);
      static_assert(kObjects > 0);
      void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) return false;
      // Backwards, so that objects are handed out in ascending order.
      for (std::size_t i = kObjects; i-- > 0;) put(new (static_cast<std::byte*>(memory) + i * sizeof(T)) T);
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

 private:
  T* free_ = nullptr;
  std::size_t available_ = 0;
};

}  // namespace pinion
