// NAS BT. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (multi-partition
// decomposition, exchange of faces, pipelined block-tridiagonal sweeps); problem sizes of NPB 3 from
// NAS-99-011 and NAS-03-002. Operation counts as the benchmark prints them.
//
// A step: copy_faces, then a sweep in each direction. A sweep has as many stages as there are cells on a
// side: forward, each stage passes a face of 5x5 blocks and right-hand sides (30 values a point) to the
// successor; backward, a face of solutions (5 values) to the predecessor. Blocks of the largest cell are
// sent, whatever the cell. All messages share one buffer for sending and one for receiving.
#include <algorithm>

#include "simulate/patterns/multi_partition.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int points;
  std::uint64_t steps;
};
constexpr Class kClasses[] = {{'S', 12, 60},   {'W', 24, 200},  {'A', 64, 200},  {'B', 102, 200},
                              {'C', 162, 200}, {'D', 408, 250}, {'E', 1020, 250}};

double flops_of_step(double n) { return 3478.8 * n * n * n - 17655.7 * n * n + 28023.7 * n; }

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  const MultiPartition partition(points, builder.ranks(), builder.rank());
  const int stages = partition.cells_per_side();
  const auto side = static_cast<std::uint64_t>(partition.largest_side() + 1);
  const std::uint64_t forward = side * side * 30 * kDouble, backward = side * side * 5 * kDouble;
  const std::uint64_t room = std::max(partition.faces_bytes(), forward);
  const Address in = builder.array(room), out = builder.array(room);
  const double flops = flops_of_step(points) / builder.ranks();

  using Direction = MultiPartition::Direction;
  builder.begin_turn();
  partition.copy_faces(builder, in, out, 1);
  builder.compute(0.25 * flops);  // right-hand sides
  std::uint64_t site = 20;
  for (const Direction d : {Direction::x, Direction::y, Direction::z}) {
    const double stage_flops = 0.25 * flops / stages;
    for (int stage = 0; stage < stages; ++stage) {
      if (stage > 0) {
        builder.post(CallKind::receive_nonblocking, out, forward, partition.predecessor(d), site);
        builder.wait();
      }
      builder.compute(0.9 * stage_flops);
      if (stage + 1 < stages)
        builder.post(CallKind::send_nonblocking, in, forward, partition.successor(d), site + 1);
    }
    for (int stage = stages; stage-- > 0;) {
      if (stage + 1 < stages) {
        builder.post(CallKind::receive_nonblocking, out, backward, partition.successor(d), site + 2);
        builder.wait();
      }
      builder.compute(0.1 * stage_flops);
      if (stage > 0)
        builder.post(CallKind::send_nonblocking, in, backward, partition.predecessor(d), site + 3);
    }
    site += 4;
  }
  builder.end_turn(steps);
}

}  // namespace

Error make_bt(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const Class* of = find_class(kClasses, "bt", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "bt", RanksRule::square, pattern.ranks))) return error;
  if (of->points / square_root(pattern.ranks) < 3)
    return Error::make(EINVAL, "pattern bt: %d ranks leave cells of less than 3 points a side of class %c",
                       pattern.ranks, of->name);
  pattern.turns = of->steps;
  pattern.write = [points = of->points](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, turns);
  };
  return {};
}

}  // namespace pinion::simulate
