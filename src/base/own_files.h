// Runs a function on a thread that has a table of open files of its own. A descriptor that it opens is
// invisible to the program, which may close all numbers, or put files of its own at any of them, at any time.
//
// For threads of Pinion's: creates a thread and waits for it. The function holds no lock that the caller
// holds, and uses no descriptor of the process, standard error included.
#pragma once

#include <functional>

namespace pinion {

/// False, without calling it, where the system refuses the thread or the table.
bool with_own_files(const std::function<void()>& function);

}  // namespace pinion
