// Memory whose place stays free of other mappings of the process while it is unmapped for a moment. The
// kernel fills the highest gap that is large enough, so a large gap is left above. Any thread.
#pragma once

#include <sys/mman.h>

#include <cstddef>

#include "base/range.h"

namespace pinion::test {

/// Readable and writable memory at such a place; empty where there is none.
inline Range map_apart(std::size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS) {
  constexpr std::size_t kGap = std::size_t{1} << 30;
  void* const all =
      ::mmap(nullptr, bytes + kGap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return {};
  void* const start = ::mmap(all, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
  ::munmap(static_cast<char*>(all) + bytes, kGap);
  return start == MAP_FAILED ? Range{} : Range::of(start, bytes);
}

}  // namespace pinion::test
