// The line of Python that the calling thread is in: its interpreter's frames, read as a profiler does from
// outside. Python is never entered, as a caller of MPI or CUDA has mostly released its lock (the GIL). What
// is read belongs to the calling thread, which stands still meanwhile: its frames, and the code that these
// hold.
//
// Each read goes through the kernel, which refuses addresses that are none; each object must have its type.
// An interpreter with another layout, or without one known here, gives no place. Known are CPython 3.11
// to 3.14; tried were those up to 3.13.
//
// Owns what is known of the interpreter. find_python() is ordinary code, one thread at a time. python_place()
// may be called by any thread and by signal handlers: it allocates nothing, takes no lock and keeps errno.
#pragma once

#include <cstddef>

namespace pinion {

constexpr std::size_t kPythonPlaceBytes = 96;

/// Looks for an interpreter in this process, among the symbols that every library sees.
void find_python();

/// Writes "train.py:41 in step": the innermost frame outside of installed packages, or the innermost of all.
/// Empty where the thread runs no Python.
void python_place(char (&text)[kPythonPlaceBytes]);

}  // namespace pinion
