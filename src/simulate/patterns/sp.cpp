// NAS SP. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (the multi-partition
// decomposition and exchange of faces of BT; pipelined scalar pentadiagonal sweeps); problem sizes of NPB 3
// from NAS-99-011 and NAS-03-002. Operation counts as the benchmark prints them.
//
// A step: copy_faces, then a sweep in each direction, as in BT: forward, a stage passes 22 values for each
// inner point of the face to the successor; backward, 10 to the predecessor. Points at the boundary of the
// cube are not solved for.
#include <algorithm>

#include "simulate/patterns/multi_partition.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int points;
  std::uint64_t steps;
};
constexpr Class kClasses[] = {{'S', 12, 100},  {'W', 36, 400},  {'A', 64, 400},  {'B', 102, 400},
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

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  const MultiPartition partition(points, builder.ranks(), builder.rank());
  const int stages = partition.cells_per_side();
  const auto side = static_cast<std::uint64_t>(partition.largest_side());
  const std::uint64_t room = std::max(partition.faces_bytes(), side * side * 22 * kDouble);
  const Address in = builder.array(room), out = builder.array(room);
  const double flops = flops_of_step(points) / builder.ranks();

  builder.begin_turn();
  partition.copy_faces(builder, in, out, 1);
  builder.compute(0.4 * flops);  // right-hand sides and the change of variables
  std::uint64_t site = 20;
  for (const Direction d : {Direction::x, Direction::y, Direction::z}) {
    const double stage_flops = 0.2 * flops / stages;
    for (int stage = 0; stage < stages; ++stage) {
      const std::uint64_t bytes = inner_face(partition, partition.in_stage(d, stage), d) * 22 * kDouble;
      if (stage > 0) {
        builder.post(CallKind::receive_nonblocking, in, bytes, partition.predecessor(d), site);
        builder.wait();
      }
      builder.compute(0.7 * stage_flops);
      if (stage + 1 < stages)
        builder.post(CallKind::send_nonblocking, out, bytes, partition.successor(d), site + 1);
    }
    for (int stage = stages; stage-- > 0;) {
      const std::uint64_t bytes = inner_face(partition, partition.in_stage(d, stage), d) * 10 * kDouble;
      if (stage + 1 < stages) {
        builder.post(CallKind::receive_nonblocking, in, bytes, partition.successor(d), site + 2);
        builder.wait();
      }
      builder.compute(0.3 * stage_flops);
      if (stage > 0) builder.post(CallKind::send_nonblocking, out, bytes, partition.predecessor(d), site + 3);
    }
    site += 4;
  }
  builder.end_turn(steps);
}

}  // namespace

Error make_sp(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const Class* of = find_class(kClasses, "sp", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "sp", RanksRule::square, pattern.ranks))) return error;
  if (of->points / square_root(pattern.ranks) < 3)
    return Error::make(EINVAL, "pattern sp: %d ranks leave cells of less than 3 points a side of class %c",
                       pattern.ranks, of->name);
  pattern.turns = of->steps;
  pattern.write = [points = of->points](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, turns);
  };
  return {};
}

}  // namespace pinion::simulate
