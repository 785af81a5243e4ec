// Calls that drop pages of a file under its mappings: ftruncate, truncate, fallocate, MADV_REMOVE. Finds the
// memory of this process that loses pages.
//
// The kernel names a mapped file by its inode alone on every file system: devices differ on overlays and
// subvolumes. A file of the same number elsewhere costs its mappings a registration. A mapping that another
// thread makes during the call goes unseen, and so do cuts by other processes.
//
// Owns nothing. Any thread, any signal handler: free of allocation, with small stacks and direct system
// calls. Calls that keep all pages cost one look at the file's size.
#pragma once

#include "monitor/memory_calls.h"

namespace pinion {

/// The mapped memory whose pages the call drops. More than two places: all addresses.
ConcernedMemory cut_memory(long number, const SystemCallArguments& arguments);

}  // namespace pinion
