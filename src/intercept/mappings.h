// mmap, munmap and mremap of libpinion-heap.so (mappings.cpp).
#pragma once

#include <cstddef>

namespace pinion {

/// From now on mappings of so many bytes lie in the arena, which is reserved. Before threads start.
void serve_mappings(std::size_t least);

}  // namespace pinion
