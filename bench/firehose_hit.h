// The part of `pinion bench firehose` that needs no processes: the bookkeeping of a put that hits, by the
// number of buckets held, beside a look-up in a hash table of the same size and two uncontended atomic pairs.
#pragma once

#include "bench/bench.h"

namespace pinion::cli {

void measure_hits(Bench& bench);

}  // namespace pinion::cli
