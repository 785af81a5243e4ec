// mmap, munmap, mremap and further system calls of libpinion-heap.so (mappings.cpp).
#pragma once

#include <cstddef>

namespace pinion {

/// Serves mappings of so many bytes and more from the arena, which is reserved. Call it before threads start.
void serve_mappings(std::size_t least);

/// Whether the program has put a filter of system calls over itself since it started.
bool filters_system_calls();

}  // namespace pinion
