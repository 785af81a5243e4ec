// Whether the program has closed a sandbox around itself: a filter of system calls, beyond which its process
// is ended. Starting the engine opens files, and makes threads and rings, which a program may have shut
// itself off from by its first copy or registration. It goes on as without us then.
//
// The kernel's status of the process is opened ahead, where a program still opens files itself, and asked by
// calls that any program makes (lseek, read), so also no lock holds signals back. A forked child opens its
// own, unless it was forked behind such a sandbox. A filter of a single thread that is not the first is
// unseen.
//
// Owns the descriptor. Any thread; one asks at a time.
#pragma once

namespace pinion {

/// Notes the filters that there are now. Later calls change nothing.
void note_filters();

/// Whether a filter was added since. False where the kernel does not say, and where none were noted.
bool has_new_filter();

}  // namespace pinion
