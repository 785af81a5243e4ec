// NAS LU. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (2-D partition of the
// grid in x and y, wavefront sweeps over the planes of z, after Barszcz et al.); problem sizes of NPB 3 from
// NAS-99-011 and NAS-03-002; call sites, counts and order of NPB 3.3-MPI. Operation counts as the benchmark
// prints them.
//
// A step: the lower and the upper triangular sweep, and the right-hand sides. In a sweep every inner plane
// passes one row of inner points (5 values a point) to two neighbours. The right-hand sides exchange two
// layers of ghost points (10 values a point of the face) in x, compute the differences in x, and then do the
// same in y (exchange_3). Each is a blocking send, its receive posted before, all through one buffer for
// sending and one for receiving.
//
// The program exchanges ghosts in the forcing terms, and solves twice: one step to touch all pages, then all
// steps. Each time there are right-hand sides before the first step, called from a line of their own.
#include <algorithm>

#include "papers/patterns/patterns.h"

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

/// The lines that lead to messages, in each caller.
enum InMain : Site { kForcing = 1, kWarmUp, kTimed };
enum InSolver : Site { kFirstRhs = 1, kLowerReceives, kLowerSends, kUpperReceives, kUpperSends, kLoopRhs };
enum InRhs : Site { kInX = 1, kInY };

class Writer {
 public:
  Writer(ProgramBuilder& builder, int points)
      : builder_(builder), at_(Grid(builder.ranks()), builder.rank()), planes_(points - 2) {
    const Grid grid(builder.ranks());
    const int row = builder.rank() % grid.rows, column = builder.rank() / grid.rows;
    const int nx = points / grid.rows + (row < points % grid.rows);
    const int ny = points / grid.columns + (column < points % grid.columns);
    across_x_ = bytes_of(10 * ny) * static_cast<std::uint64_t>(points);
    across_y_ = bytes_of(10 * nx) * static_cast<std::uint64_t>(points);
    row_x_ = bytes_of(5 * (ny - (at_.west == kNobody) - (at_.east == kNobody)));
    row_y_ = bytes_of(5 * (nx - (at_.north == kNobody) - (at_.south == kNobody)));
    out_ = builder.array(std::max(across_x_, across_y_));
    in_ = builder.array(std::max(across_x_, across_y_));
    row_out_ = builder.array(std::max(row_x_, row_y_));
    row_in_ = builder.array(std::max(row_x_, row_y_));
    flops_ = flops_of_step(points) / builder.ranks();
  }

  /// Right-hand sides, or forcing terms, which are computed alike: a third of it for each direction.
  void rhs(Site caller) {
    const double of_a_direction = 0.3 * flops_ / 3;
    exchange(across_x_, at_.north, at_.south, called_from(caller, kInX));
    builder_.compute(of_a_direction);
    exchange(across_y_, at_.west, at_.east, called_from(caller, kInY));
    builder_.compute(2 * of_a_direction);
  }

  void step(Site caller) {
    sweep(at_.north, at_.west, at_.south, at_.east, called_from(caller, kLowerReceives),
          called_from(caller, kLowerSends));
    sweep(at_.south, at_.east, at_.north, at_.west, called_from(caller, kUpperReceives),
          called_from(caller, kUpperSends));
    rhs(called_from(caller, kLoopRhs));
  }

 private:
  static std::uint64_t bytes_of(int values) { return static_cast<std::uint64_t>(values) * kDouble; }

  /// Ghost points of one direction: upward, then downward.
  void exchange(std::uint64_t bytes, int below, int above, Site caller) {
    pass(bytes, below, above, called_from(caller, 1), called_from(caller, 2));
    pass(bytes, above, below, called_from(caller, 3), called_from(caller, 4));
  }
  void pass(std::uint64_t bytes, int from, int to, Site receives, Site sends) {
    if (from != kNobody) builder_.post(CallKind::receive_nonblocking, in_, bytes, from, receives);
    if (to != kNobody) builder_.post(CallKind::send, out_, bytes, to, sends);
    if (from != kNobody || to != kNobody) builder_.wait();
  }

  /// Each plane: its block of the matrix, its neighbours' rows, the solution, its own rows.
  void sweep(int from_x, int from_y, int to_x, int to_y, Site receives, Site sends) {
    const double half = 0.35 * flops_ / planes_ / 2;
    for (int plane = 0; plane < planes_; ++plane) {
      builder_.compute(half);
      row(CallKind::receive, row_in_, row_x_, from_x, called_from(receives, 1));
      row(CallKind::receive, row_in_, row_y_, from_y, called_from(receives, 2));
      builder_.compute(half);
      row(CallKind::send, row_out_, row_x_, to_x, called_from(sends, 1));
      row(CallKind::send, row_out_, row_y_, to_y, called_from(sends, 2));
    }
  }
  void row(CallKind call, Address buffer, std::uint64_t bytes, int peer, Site site) {
    if (peer != kNobody) builder_.blocking(call, buffer, bytes, peer, site);
  }

  ProgramBuilder& builder_;
  const Neighbours at_;
  const int planes_;
  std::uint64_t across_x_, across_y_, row_x_, row_y_;
  Address out_, in_, row_out_, row_in_;
  double flops_;
};

void write(ProgramBuilder& builder, int points, std::uint64_t steps) {
  Writer writer(builder, points);
  writer.rhs(kForcing);
  writer.rhs(called_from(kWarmUp, kFirstRhs));
  writer.step(kWarmUp);
  writer.rhs(called_from(kTimed, kFirstRhs));
  builder.begin_turn();
  writer.step(kTimed);
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
