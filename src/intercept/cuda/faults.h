// Copies of the program's memory by threads of Pinion's. A fault there would run the program's handler on a
// thread that it does not know: a collector's or a language's runtime finds no state of its own. So the
// kernel copies where the program has a handler, and a page that faults is an answer. Owns nothing; any
// thread.
#pragma once

#include <cstddef>

namespace pinion::cuda {

/// Whether the program handles faults of its memory. Without a handler each fault ends the process, whichever
/// thread meets it.
bool faults_are_handled();

/// Copies from the program's memory. False: not all of it can be read.
bool read_program(void* to, const void* from, std::size_t bytes);
/// Copies to the program's memory. False: not all of it can be written.
bool write_program(void* to, const void* from, std::size_t bytes);

}  // namespace pinion::cuda
