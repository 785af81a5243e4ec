// Whether the program has closed a sandbox around itself: a filter of system calls, beyond which its process
// is ended. Starting the engine opens files, and makes threads and rings, which a program may have shut
// itself off from once its driver runs. It copies as without us then.
//
// The kernel's status of the process is opened at cuInit, where the driver itself opens files, and asked by
// calls that any program makes (lseek, read). A filter of a single thread that is not the first is unseen.
//
// Owns the descriptor. One thread at a time: the caller's lock guards both.
#pragma once

namespace pinion::cuda {

/// Notes the filters that there are now. Later calls change nothing.
void note_filters();

/// Whether a filter was added since. False where the kernel does not say.
bool has_new_filter();

}  // namespace pinion::cuda
