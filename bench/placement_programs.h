// Times of the examples with and without hugepages, for `pinion bench placement`: the hugepage paper's
// Figure 6. Single-threaded.
#pragma once

#include "bench/bench.h"

namespace pinion::cli {

void measure_programs(Bench& bench);

}  // namespace pinion::cli
