// mmap, munmap, mremap and further system calls of libpinion-heap.so (mappings.cpp).
#pragma once

#include <cstddef>

namespace pinion {

/// From now on mappings of so many bytes lie in the arena, which is reserved. Before threads start.
void serve_mappings(std::size_t least);

/// Whether the program has put a filter of system calls over itself since it started.
bool filters_system_calls();

}  // namespace pinion
