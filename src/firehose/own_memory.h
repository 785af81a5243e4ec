// Access to this process's memory on behalf of peers. The kernel checks each address, so that memory that is
// unmapped, or forbids the access, is an error instead of a fault.
//
// An atomic operation is the processor's own: while it runs, changes of its page wait in their hooks
// (word_guard.h). Any thread, outside of hooks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace pinion::firehose::own_memory {

// Each returns 0 or an errno value: EFAULT where the memory is unmapped or forbids the access.

int write(std::uint64_t target, const void* from, std::size_t bytes);
int read(void* to, std::uint64_t source, std::size_t bytes);

/// Like the above, for several places, one after another; `bytes` is their sum.
int write(std::span<const iovec> targets, const void* from, std::size_t bytes);
int read(void* to, std::span<const iovec> sources, std::size_t bytes);

/// Applies an operation of pinion_firehose_operation to an aligned word of 4 or 8 bytes. EBUSY: its memory is
/// changing; nothing was done.
int apply(std::uint64_t target, std::size_t bytes, unsigned operation, std::uint64_t operand,
          std::uint64_t compare, std::uint64_t& old);

}  // namespace pinion::firehose::own_memory
