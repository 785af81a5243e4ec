// The heap beside other allocators, for `pinion bench placement`: patterns of our own
// (bench/programs/allocations.cpp) and programs of the system, each in processes of its own. One thread.
#pragma once

#include "bench/bench.h"

namespace pinion::cli {

/// Adds the rows. Allocators and programs that are missing get a note.
void measure_allocators(Bench& bench);

}  // namespace pinion::cli
