// Faults in, by several threads, a large range that the program is about to register itself: the kernel would
// do that in the registering call, by one thread. Registering then only pins.
//
// Stateless. Any thread without locks, outside of hooks; blocks until all is present. Signals are held
// meanwhile, as the registering call would hold them.
#pragma once

#include <cstddef>

#include "base/range.h"

namespace pinion {

/// Makes the untouched pages of the range present, if it is long and mostly untouched. Takes only private
/// writable memory of no file, and changes no contents; the threads place memory by the caller's policy.
/// Leaves everything as it is without `for_writing`, and where the process may use one core only. Errors are
/// left to the registration that follows. Returns the bytes that it looked through; 0: it did nothing.
std::size_t fault_in_by_threads(Range range, bool for_writing);

}  // namespace pinion
