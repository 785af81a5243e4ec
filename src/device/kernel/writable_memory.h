// Memory that may be pinned for writing, and for long, without harm: writable, and no private mapping of a
// file. A pin of the latter gives the process a copy of its own, which page cache was shared before: eight
// processes that map one file of weights would hold eight (evidence-gpu.md).
//
// Stateless; any thread, outside of hooks. A question costs a system call for each mapping since Linux 6.11;
// before that all mappings of the process are read. The answer is right when it is given: other threads
// change mappings meanwhile.
#pragma once

#include "base/error.h"
#include "base/range.h"

namespace pinion {

/// EFAULT: a part is unmapped, forbids writing, or is a file's private mapping. Hugetlb memory is no file's.
Error check_writable_memory(Range range);
/// The way of older kernels.
Error check_writable_memory_by_text(Range range);

}  // namespace pinion
