// Mapped files that other users can cut unseen: no memory event of this process tells of it.
//
// Such a mapping is shared (MAP_SHARED), and its regular file has a name. The file's mode lets its group or
// all users write, or its owner is another user than the process's and root. A group with the owner's number
// is the owner's alone, as Debian and Red Hat make them: there files are writable for it by default. Nobody
// else opens a file without a name: memory that MPI libraries share has none, or the mode 0600.
//
// Any thread, outside of hooks. A question costs a system call a mapping since Linux 6.11, and two more for a
// shared file. Before that the process's mappings are read, for at most 2 % of the time, so that a mapping
// may be known some milliseconds late.
#pragma once

#include "base/range.h"

namespace pinion {

/// Whether others can cut a file that is mapped in the range.
bool others_can_cut(Range range);
/// Like the above, by the text of the process's mappings, read now.
bool others_can_cut_by_text(Range range);

}  // namespace pinion
