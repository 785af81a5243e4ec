// Whether the program has a userfaultfd of its own, among its open files. Two of them cannot have the same
// memory. Direct system calls, no allocation. Any thread; costs some microseconds for each open file.
#pragma once

namespace pinion {

/// `own`: the descriptor of Pinion's, or -1. False too where /proc is missing.
bool program_has_userfaultfd(int own);

}  // namespace pinion
