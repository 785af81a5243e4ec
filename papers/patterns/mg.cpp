// NAS MG. Sources: Bailey et al., "The NAS Parallel Benchmarks", report RNR-94-007, and "2.0", NAS-95-020
// (3-D partition, V-cycle of the multigrid method, ghost faces exchanged in each direction after every
// operator); sizes from NAS-02-007 and NAS-03-002; call sites, counts and order of NPB 3.3-MPI. Operation
// counts as the benchmark prints them.
//
// An exchange at a level: for each direction in turn, both receives posted, both faces sent from two buffers
// into two others, all shared by all levels. Each direction has its own two lines that send; the two lines
// that receive serve all three. A V-cycle: residuals are restricted down the levels (an exchange at each
// coarser one) and the coarsest is smoothed. On the way up come residual and smoother at each level (two
// exchanges). The finest level, those between and the coarsest call from lines of their own. A residual
// follows each cycle.
//
// Receives have the length of the arriving message; the program posts them for the largest face. Levels
// with fewer points a side than ranks carry messages of a few bytes and are left out.
#include <algorithm>
#include <array>

#include "papers/patterns/patterns.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int points;
  std::uint64_t iterations;
};
constexpr Class kClasses[] = {{'S', 32, 4},   {'W', 128, 4},   {'A', 256, 4},  {'B', 256, 20},
                              {'C', 512, 20}, {'D', 1024, 50}, {'E', 2048, 50}};

struct Grid {
  std::array<int, 3> ranks;
  explicit Grid(int all) {
    const int log = log2_of(all);
    ranks[0] = 1 << (log / 3);
    ranks[1] = 1 << ((log - log / 3) / 2);
    ranks[2] = all / (ranks[0] * ranks[1]);
  }
  int neighbour(int rank, std::size_t axis, int step) const {
    std::array<int, 3> at = {rank % ranks[0], rank / ranks[0] % ranks[1], rank / (ranks[0] * ranks[1])};
    at[axis] = (at[axis] + step + ranks[axis]) % ranks[axis];
    return at[0] + ranks[0] * (at[1] + ranks[1] * at[2]);
  }
};

/// The lines that lead to exchanges: in the program, and in the V-cycle.
enum InMain : Site {
  kFirstCharges = 1,
  kFirstResidual,
  kWarmUpCycle,
  kWarmUpResidual,
  kCharges,
  kTimedResidual,
  kCycle,
  kResidual
};
enum InCycle : Site {
  kRestrict = 1,
  kSmoothCoarsest,
  kResidualBetween,
  kSmoothBetween,
  kResidualTop,
  kSmoothTop
};

/// Operations of an operator, for each point of its result; of interpolation, for each of the coarser level:
/// as the source counts them. With all levels, an iteration is made of 57 a point where the benchmark
/// counts 58.
constexpr double kResidualFlops = 15, kSmoothFlops = 16, kRestrictFlops = 24, kInterpolateFlops = 20;
constexpr double kCoarserLevels = 1.0 / 7;  ///< their points, of those of the finest
constexpr double kCounted =
    2 * kResidualFlops + kSmoothFlops +
    kCoarserLevels * (kRestrictFlops + kInterpolateFlops + kResidualFlops + kSmoothFlops);
/// A random number, as FT counts its own.
constexpr double kRandomFlops = 7.4;

class Writer {
 public:
  Writer(ProgramBuilder& builder, int points) : builder_(builder), grid_(builder.ranks()), points_(points) {
    std::uint64_t room = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) room = std::max(room, face(points, axis));
    for (Address& buffer : buffers_) buffer = builder.array(room);
  }

  /// The right-hand side: charges at random points.
  void charges(Site caller) { apply(kRandomFlops, points_, caller); }
  void residual(Site caller) { apply(kResidualFlops, points_, caller); }

  void cycle(Site caller) {
    const int least = std::max(2, *std::max_element(grid_.ranks.begin(), grid_.ranks.end()));
    for (int points = points_ / 2; points >= least; points /= 2)
      apply(kRestrictFlops, points, called_from(caller, kRestrict));
    if (least == 2) apply(kSmoothFlops, 2, called_from(caller, kSmoothCoarsest));
    for (int points = std::max(4, least); points <= points_; points *= 2) {
      const bool top = points == points_;
      compute(kInterpolateFlops, points / 2);
      apply(kResidualFlops, points, called_from(caller, top ? kResidualTop : kResidualBetween));
      apply(kSmoothFlops, points, called_from(caller, top ? kSmoothTop : kSmoothBetween));
    }
  }

 private:
  void compute(double flops_of_a_point, int points) {
    const double n = points;
    builder_.compute(58 / kCounted * flops_of_a_point * n * n * n / builder_.ranks());
  }
  void apply(double flops_of_a_point, int points, Site caller) {
    compute(flops_of_a_point, points);
    exchange(points, caller);
  }
  /// Bytes of the face across `axis`: of inner points, and of those ghosts that have been exchanged before.
  std::uint64_t face(int points, std::size_t axis) const {
    const auto local = [&](std::size_t a) { return static_cast<std::uint64_t>(points / grid_.ranks[a]); };
    constexpr std::uint64_t kGhosts = 2;
    switch (axis) {
      case 0:
        return local(1) * local(2) * kDouble;
      case 1:
        return (local(0) + kGhosts) * local(2) * kDouble;
      default:
        return (local(0) + kGhosts) * (local(1) + kGhosts) * kDouble;
    }
  }
  void exchange(int points, Site caller) {
    if (builder_.ranks() == 1) return;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::uint64_t bytes = face(points, axis);
      const int below = grid_.neighbour(builder_.rank(), axis, -1),
                above = grid_.neighbour(builder_.rank(), axis, 1);
      builder_.post(CallKind::receive_nonblocking, buffers_[0], bytes, above, called_from(caller, 1));
      builder_.post(CallKind::receive_nonblocking, buffers_[1], bytes, below, called_from(caller, 2));
      builder_.post(CallKind::send, buffers_[2], bytes, above, called_from(caller, 3 + 2 * axis));
      builder_.post(CallKind::send, buffers_[3], bytes, below, called_from(caller, 4 + 2 * axis));
      builder_.wait();
    }
  }

  ProgramBuilder& builder_;
  const Grid grid_;
  const int points_;
  std::array<Address, 4> buffers_;
};

void write(ProgramBuilder& builder, int points, std::uint64_t iterations) {
  Writer writer(builder, points);
  writer.charges(kFirstCharges);
  writer.residual(kFirstResidual);
  writer.cycle(kWarmUpCycle);
  writer.residual(kWarmUpResidual);
  writer.charges(kCharges);
  writer.residual(kTimedResidual);
  builder.begin_turn();
  writer.cycle(kCycle);
  writer.residual(kResidual);
  builder.end_turn(iterations);
}

}  // namespace

Error make_mg(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const Class* of = find_class(kClasses, "mg", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "mg", RanksRule::power_of_two, pattern.ranks))) return error;
  if (Grid(pattern.ranks).ranks[2] * 2 > of->points)
    return Error::make(EINVAL, "pattern mg: %d ranks leave less than 2 points a side of class %c",
                       pattern.ranks, of->name);
  pattern.turns = of->iterations;
  pattern.write = [points = of->points](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, turns);
  };
  return {};
}

}  // namespace pinion::simulate
