// Runs a function on a thread that has a table of open files of its own. Its descriptors are invisible to the
// program, which may close any number, or put files of its own there, at any time.
//
// For threads of Pinion's: creates a thread and waits for it. The function must leave alone the caller's
// locks and all descriptors of the process, standard error included.
#pragma once

#include <functional>

namespace pinion {

/// False, without calling it, where the system refuses the thread or the table.
bool with_own_files(const std::function<void()>& function);

}  // namespace pinion
