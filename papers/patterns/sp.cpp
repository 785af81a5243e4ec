// NAS SP. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (the multi-partition
// decomposition and exchange of faces of BT; pipelined scalar pentadiagonal sweeps); problem sizes of NPB 3
// from NAS-99-011 and NAS-03-002; call sites, counts and order of NPB 3.3-MPI. Operation counts as the
// benchmark prints them.
//
// A step: copy_faces, then a sweep in each direction, as in BT: forward, a stage passes 22 values for each
// inner point of the face to the successor; backward, 10 to the predecessor. Points at the boundary of the
// cube are not solved for. While a message is under way, a stage computes the left-hand sides of its cell; on
// the way back, it inverts the blocks of the cell before. One step before the clock is started touches all
// pages.
#include <algorithm>

#include "papers/patterns/multi_partition.h"

namespace pinion::simulate {

namespace {

constexpr CubeClass kClasses[] = {{'S', 12, 100},  {'W', 36, 400},  {'A', 64, 400},  {'B', 102, 400},
                                  {'C', 162, 400}, {'D', 408, 500}, {'E', 1020, 500}};

double flops_of_step(double n) { return 881.174 * n * n * n - 4683.91 * n * n + 11484.5 * n - 19272.4; }

using Direction = MultiPartition::Direction;

std::uint64_t inner_face(const MultiPartition& partition, const MultiPartition::Cell& cell, Direction d) {
  std::uint64_t points = 1;
  for (const std::size_t across : {(d + 1) % 3, (d + 2) % 3}) {
    const int boundary = (cell.at[across] == 0) + (cell.at[across] == partition.cells_per_side() - 1);
    points *= static_cast<std::uint64_t>(cell.size[across] - boundary);
  }
  return points;
}

enum InMain : Site { kWarmUp = 1, kTimed };
enum InStep : Site { kCopyFaces = 1, kSolveX };  // kSolveX: and those of y and z

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  const MultiPartition partition(points, builder.ranks(), builder.rank());
  const auto side = static_cast<std::uint64_t>(partition.declared_side());
  const std::uint64_t room = std::max(partition.faces_bytes(), side * side * 22 * kDouble);
  const Address in = builder.array(room), out = builder.array(room);
  const double flops = flops_of_step(points) / builder.ranks();
  const double stage_flops = 0.2 * flops / partition.cells_per_side();

  const auto step = [&](Site caller) {
    partition.copy_faces(builder, in, out, called_from(caller, kCopyFaces));
    builder.compute(0.4 * flops);  // right-hand sides and the change of variables
    for (const Direction d : {Direction::x, Direction::y, Direction::z}) {
      const auto values = [&partition, d](std::uint64_t a_point) {
        return [&partition, d, a_point](int stage) {
          return inner_face(partition, partition.in_stage(d, stage), d) * a_point * kDouble;
        };
      };
      partition.sweep(builder, d, in, out, called_from(caller, kSolveX + static_cast<Site>(d)),
                      {values(22), 0.2 * stage_flops, 0.5 * stage_flops},
                      {values(10), 0.1 * stage_flops, 0.2 * stage_flops});
    }
  };
  step(kWarmUp);
  builder.begin_turn();
  step(kTimed);
  builder.end_turn(steps);
}

}  // namespace

Error make_sp(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  return make_multi_partition("sp", kClasses, write, scale, ranks, pattern);
}

}  // namespace pinion::simulate
