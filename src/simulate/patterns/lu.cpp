// NAS LU. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (2-D partition of the
// grid in x and y, wavefront sweeps over the planes of z, after Barszcz et al.); problem sizes of NPB 3 from
// NAS-99-011 and NAS-03-002. Operation counts as the benchmark prints them.
//
// A step: the lower and the upper triangular sweep, in each of which every inner plane passes one row of
// points (5 values a point) to two neighbours, and the right-hand sides, before which two layers of ghost
// points (10 values a point of the face) are exchanged with all four (exchange_3): a blocking send each, its
// receive posted before, all through one buffer for sending and one for receiving.
#include <algorithm>

#include "simulate/patterns/patterns.h"

namespace pinion::simulate {

namespace {

constexpr CubeClass kClasses[] = {{'S', 12, 50},   {'W', 33, 300},  {'A', 64, 250},  {'B', 102, 250},
                                  {'C', 162, 250}, {'D', 408, 300}, {'E', 1020, 300}};

double flops_of_step(double n) { return 1984.77 * n * n * n - 10923.3 * n * n + 27770.9 * n - 144010; }

struct Grid {
  int rows, columns;  ///< of ranks: rows cut x, columns cut y
  explicit Grid(int ranks) {
    const int log = log2_of(ranks);
    rows = 1 << ((log + 1) / 2);
    columns = ranks / rows;
  }
};

constexpr int kNobody = -1;

struct Neighbours {
  int north, south, west, east;
  Neighbours(const Grid& grid, int rank) {
    const int row = rank % grid.rows, column = rank / grid.rows;
    north = row > 0 ? rank - 1 : kNobody;
    south = row + 1 < grid.rows ? rank + 1 : kNobody;
    west = column > 0 ? rank - grid.rows : kNobody;
    east = column + 1 < grid.columns ? rank + grid.rows : kNobody;
  }
};

/// Ghost points from `from`, and to `to`.
void exchange(ProgramBuilder& builder, Address out, Address in, std::uint64_t bytes, int from, int to,
              std::uint64_t site) {
  if (from != kNobody) builder.post(CallKind::receive_nonblocking, in, bytes, from, site);
  if (to != kNobody) builder.post(CallKind::send, out, bytes, to, site + 1);
  if (from != kNobody || to != kNobody) builder.wait();
}

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  const Grid grid(builder.ranks());
  const Neighbours at(grid, builder.rank());
  const int row = builder.rank() % grid.rows, column = builder.rank() / grid.rows;
  const auto nx = static_cast<std::uint64_t>(points / grid.rows + (row < points % grid.rows));
  const auto ny = static_cast<std::uint64_t>(points / grid.columns + (column < points % grid.columns));
  const auto nz = static_cast<std::uint64_t>(points);
  const std::uint64_t across_x = 10 * ny * nz * kDouble, across_y = 10 * nx * nz * kDouble;
  const Address out = builder.array(std::max(across_x, across_y)),
                in = builder.array(std::max(across_x, across_y));
  const std::uint64_t row_x = 5 * ny * kDouble, row_y = 5 * nx * kDouble;
  const Address pencil = builder.array(2 * std::max(row_x, row_y));
  const double flops = flops_of_step(points) / builder.ranks();
  const double plane_flops = 0.35 * flops / static_cast<double>(nz - 2);

  const auto ghosts = [&](std::uint64_t site) {
    exchange(builder, out, in, across_x, at.north, at.south, site);
    exchange(builder, out, in, across_x, at.south, at.north, site + 2);
    exchange(builder, out, in, across_y, at.west, at.east, site + 4);
    exchange(builder, out, in, across_y, at.east, at.west, site + 6);
  };
  const auto sweep = [&](int from_x, int from_y, int to_x, int to_y, std::uint64_t site) {
    for (std::uint64_t plane = 0; plane + 2 < nz; ++plane) {
      if (from_x != kNobody) builder.blocking(CallKind::receive, pencil, row_x, from_x, site);
      if (from_y != kNobody) builder.blocking(CallKind::receive, pencil, row_y, from_y, site + 1);
      builder.compute(plane_flops);
      if (to_x != kNobody) builder.blocking(CallKind::send, pencil, row_x, to_x, site + 2);
      if (to_y != kNobody) builder.blocking(CallKind::send, pencil, row_y, to_y, site + 3);
    }
  };

  ghosts(1);   // of the forcing terms
  ghosts(11);  // of the first right-hand sides
  builder.begin_turn();
  sweep(at.north, at.west, at.south, at.east, 21);
  sweep(at.south, at.east, at.north, at.west, 31);
  ghosts(11);
  builder.compute(0.3 * flops);
  builder.end_turn(steps);
}

}  // namespace

Error make_lu(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const CubeClass* of = find_class(kClasses, "lu", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "lu", RanksRule::power_of_two, pattern.ranks))) return error;
  if (of->points / Grid(pattern.ranks).rows < 3)
    return Error::make(EINVAL, "pattern lu: %d ranks leave less than 3 points a side of class %c",
                       pattern.ranks, of->name);
  pattern.turns = of->steps;
  pattern.write = [points = of->points](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, turns);
  };
  return {};
}

}  // namespace pinion::simulate
