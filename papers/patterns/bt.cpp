// NAS BT. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (multi-partition
// decomposition, exchange of faces, pipelined block-tridiagonal sweeps); problem sizes of NPB 3 from
// NAS-99-011 and NAS-03-002; call sites, counts and order of NPB 3.3-MPI. Operation counts as the benchmark
// prints them.
//
// A step: copy_faces, then a sweep in each direction. A sweep has as many stages as there are cells on a
// side: forward, each stage passes a face of 5x5 blocks and right-hand sides (30 values a point) to the
// successor; backward, a face of solutions (5 values) to the predecessor. Blocks of a cell are sent as
// declared, for every cell. All messages share two buffers: the exchange of faces sends from the one into
// which the sweeps receive. One step before the clock is started touches all pages.
#include <algorithm>

#include "papers/patterns/multi_partition.h"

namespace pinion::simulate {

namespace {

constexpr CubeClass kClasses[] = {{'S', 12, 60},   {'W', 24, 200},  {'A', 64, 200},  {'B', 102, 200},
                                  {'C', 162, 200}, {'D', 408, 250}, {'E', 1020, 250}};

double flops_of_step(double n) { return 3478.8 * n * n * n - 17655.7 * n * n + 28023.7 * n; }

enum InMain : Site { kWarmUp = 1, kTimed };
enum InStep : Site { kCopyFaces = 1, kSolveX };  // kSolveX: and those of y and z

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  const MultiPartition partition(points, builder.ranks(), builder.rank());
  const auto side = static_cast<std::uint64_t>(partition.declared_side());
  const std::uint64_t forward = side * side * 30 * kDouble, backward = side * side * 5 * kDouble;
  const std::uint64_t room = std::max(partition.faces_bytes(), forward);
  const Address in = builder.array(room), out = builder.array(room);
  const double flops = flops_of_step(points) / builder.ranks();
  const double stage_flops = 0.25 * flops / partition.cells_per_side();

  const auto step = [&](Site caller) {
    partition.copy_faces(builder, in, out, called_from(caller, kCopyFaces));
    builder.compute(0.25 * flops);  // right-hand sides
    for (const auto d : {MultiPartition::x, MultiPartition::y, MultiPartition::z})
      partition.sweep(builder, d, out, in, called_from(caller, kSolveX + static_cast<Site>(d)),
                      {[=](int) { return forward; }, 0, 0.9 * stage_flops},
                      {[=](int) { return backward; }, 0, 0.1 * stage_flops});
  };
  step(kWarmUp);
  builder.begin_turn();
  step(kTimed);
  builder.end_turn(steps);
}

}  // namespace

Error make_bt(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make_multi_partition("bt", kClasses, write, scale, ranks, pattern);
}

}  // namespace pinion::simulate
