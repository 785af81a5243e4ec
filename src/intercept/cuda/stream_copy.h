// Copies memory by stores that pass the caches, where the processor has wide ones; else by memcpy. For large
// blocks that nobody reads soon. Stateless; any thread.
#pragma once

#include <cstddef>

namespace pinion::cuda {

/// The bytes are visible to devices when it returns.
void stream_copy(void* to, const void* from, std::size_t bytes);

/// The ways that a processor may have, for tests.
enum class StreamWidth { none, avx2, avx512 };
StreamWidth widest_stream();
void stream_copy(StreamWidth width, void* to, const void* from, std::size_t bytes);

}  // namespace pinion::cuda
