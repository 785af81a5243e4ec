// Allocations by operator new that fail: those of one thread, from a chosen one on. Included by one source of
// a test, whose operators it replaces.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace pinion::test {

/// While it lives, this thread's allocations fail: the one after `spared` others, or that and all later ones.
class Starvation {
 public:
  enum class Fails : unsigned char { one, all };
  explicit Starvation(unsigned spared, Fails fails = Fails::all) {
    t_spared = spared;
    t_fails = fails;
    t_refused = 0;
    t_starves = true;
  }
  ~Starvation() { t_starves = false; }
  Starvation(const Starvation&) = delete;
  Starvation& operator=(const Starvation&) = delete;

  /// Allocations that failed since the latest one began.
  static unsigned refused() { return t_refused; }

  static void* allocate(std::size_t bytes, std::size_t alignment) {
    if (t_starves && is_refused()) return nullptr;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }

 private:
  static bool is_refused() {
    if (t_spared > 0) {
      --t_spared;
      return false;
    }
    if (t_fails == Fails::one && t_refused > 0) return false;
    ++t_refused;
    return true;
  }

  static inline thread_local bool t_starves = false;
  static inline thread_local Fails t_fails = Fails::all;
  static inline thread_local unsigned t_spared = 0, t_refused = 0;
};

}  // namespace pinion::test

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return pinion::test::Starvation::allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return pinion::test::Starvation::allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes) {
  if (void* const memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  if (void* const memory = operator new(bytes, alignment, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
