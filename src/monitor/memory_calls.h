// The system calls by which memory changes under its registrations, and which memory each of them concerns.
//
// Bounds are those of whole pages; a range contains all that the kernel then drops, and may be larger. It is
// empty where the arguments alone show that the call changes nothing, or that the kernel will refuse. These
// count:
//   - munmap, shmdt, a shrinking brk;
//   - mmap and shmat over existing mappings, remap_file_pages;
//   - mremap: the old place when it may move, the tail when it shrinks, the destination of MREMAP_FIXED;
//   - madvise and process_madvise that drop pages, MADV_WIPEONFORK also, which drops them in children;
//   - mprotect and pkey_mprotect to anything less than reading and writing. Adding rights is not an event, so
//     malloc's growing heaps are free: a registration refused for want of rights is tried anew each time.
//     Protection keys take rights from a thread and leave the pages' alone;
//   - ftruncate and truncate that cut a mapped file, and fallocate that drops or moves its pages
//     (file_cuts.h).
// What does not: MADV_DONTFORK concerns children; paging out and migration leave pinned pages alone.
//
// Owns nothing. Any thread, any signal handler: free of allocation, with small stacks and direct system
// calls.
#pragma once

#include <array>

#include "base/range.h"
#include "monitor/memory_change.h"
#include "monitor/system_call.h"

namespace pinion {

/// The ranges in the order in which their brackets open.
struct ConcernedMemory {
  Range first, second;
  bool empty() const { return first.empty() && second.empty(); }
  bool contains(const ConcernedMemory& other) const;
};

/// Stands for memory that cannot be told apart.
Range all_addresses();

/// Reads the size of huge pages; ordinary code, before the first concerned_memory().
void prepare_memory_calls();

/// The memory that system call `number` concerns; empty for those that leave memory alone.
ConcernedMemory concerned_memory(long number, const SystemCallArguments& arguments);

/// The memory that the call names, whether or not it changes it: the place that a new mapping is to have, or
/// the one of some advice or rights. Empty for other calls.
Range named_memory(long number, const SystemCallArguments& arguments);

/// Whether the call has failed because memory, addresses, or what may be locked have run out.
bool lacks_memory(long number, long result);

/// The kind of the change that the call makes of its first range.
ChangeKind change_kind(long number, const SystemCallArguments& arguments);
/// The alternative to going on that the replacement of a call has (memory_change.h).
Answer alternative_to(long number);

/// The new mapping that `result` of the system call stands for, in addresses unmapped before; empty where it
/// replaced others, which is an event of its own, and where the call maps nothing.
NewMapping appeared_memory(long number, const SystemCallArguments& arguments, long result);

/// Whether an mmap asks for a mapping that is plain (NewMapping).
bool maps_plainly(const SystemCallArguments& arguments);

/// Whether all of the range is mapped, private and of no file.
bool is_private_anonymous(Range range);

/// Above every number of a call that changes memory.
constexpr long kMemoryCallNumbers = 512;
/// Which numbers the replacement of syscall() has to look at: those of concerned_memory(), and userfaultfd.
extern "C" [[gnu::visibility("hidden")]] const std::array<bool, kMemoryCallNumbers> pinion_memory_calls;

}  // namespace pinion
