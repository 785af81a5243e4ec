// Memory that stays mapped to the end, so that lock-free readers may look at what was there before. It comes
// from mmap, clear of allocator hooks. Any ordinary thread may map some, outside of spin locks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace pinion {

/// The size of the hugepages that the system makes by itself.
inline constexpr std::size_t kKeptHugePage = std::size_t{1} << 21;

/// Maps zeroed memory, which takes pages where it is touched; null: the system gives none. From a hugepage on
/// it lies and is backed as such, because lookups in much memory would miss in the page table.
inline std::byte* map_kept(std::size_t bytes) {
  // A hugepage must lie at a multiple of its size.
  const std::size_t spare = bytes < kKeptHugePage ? 0 : kKeptHugePage;
  void* const memory =
      ::mmap(nullptr, bytes + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  // Records keep 48 bits of a pointer. The kernel maps above them only where it is asked to.
  auto begin = reinterpret_cast<std::uintptr_t>(memory);
  if (begin + bytes + spare > std::uintptr_t{1} << 48) return nullptr;
  if (spare != 0) {
    begin = (begin + kKeptHugePage - 1) & ~(std::uintptr_t{kKeptHugePage} - 1);
#ifdef MADV_HUGEPAGE
    ::madvise(reinterpret_cast<void*>(begin), bytes, MADV_HUGEPAGE);
#endif
  }
  return reinterpret_cast<std::byte*>(begin);
}

}  // namespace pinion
