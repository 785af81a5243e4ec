// NAS MG. Sources: Bailey et al., "The NAS Parallel Benchmarks", report RNR-94-007, and "2.0", NAS-95-020
// (3-D partition, V-cycle of the multigrid method, ghost faces exchanged in each direction after every
// operator); sizes from NAS-02-007 and NAS-03-002. Operation counts as the benchmark prints them.
//
// An exchange at a level: for each direction in turn, both receives posted, both faces sent from two buffers
// into two others, all shared by all levels. An iteration: residuals restricted down the levels (an exchange
// at each coarser one), the coarsest smoothed, and on the way up residual and smoother at each level (two
// exchanges), and the residual once more. Receives are taken as long as what arrives; the program posts them
// for the largest face there is. Levels on which a rank has less than two points a side carry messages far
// below the threshold and are left out.
#include <algorithm>
#include <array>

#include "simulate/patterns/patterns.h"

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

class Writer {
 public:
  Writer(ProgramBuilder& builder, int points) : builder_(builder), grid_(builder.ranks()), points_(points) {
    std::uint64_t room = 0;
    for (std::size_t axis = 0; axis < 3; ++axis) room = std::max(room, face(points, axis));
    for (Address& buffer : buffers_) buffer = builder.array(room);
  }

  void iteration(double flops) {
    // A level has an eighth of the points of the one above it.
    constexpr double kAllLevels = 8.0 / 7;
    const auto at = [&](int points) {
      const double part = static_cast<double>(points) / points_;
      return flops / kAllLevels * part * part * part;
    };
    const int least = coarsest();
    for (int points = points_ / 2; points >= least; points /= 2) {
      builder_.compute(0.2 * at(points * 2));
      exchange(points, 1);  // restriction
    }
    builder_.compute(0.25 * at(least));
    exchange(least, 11);  // smoother
    for (int points = least * 2; points <= points_; points *= 2) {
      builder_.compute(0.3 * at(points));
      exchange(points, points == points_ ? 31 : 21);  // interpolation and residual
      builder_.compute(0.25 * at(points));
      exchange(points, points == points_ ? 41 : 11);
    }
    residual(0.25 * at(points_));
  }
  void residual(double flops) {
    builder_.compute(flops);
    exchange(points_, 51);
  }

 private:
  /// Points a side of the coarsest level that is written.
  int coarsest() const {
    int points = 4;
    for (const int ranks : grid_.ranks) points = std::max(points, 2 * ranks);
    return points;
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
  void exchange(int points, std::uint64_t site) {
    if (builder_.ranks() == 1) return;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const std::uint64_t bytes = face(points, axis);
      const int below = grid_.neighbour(builder_.rank(), axis, -1),
                above = grid_.neighbour(builder_.rank(), axis, 1);
      builder_.post(CallKind::receive_nonblocking, buffers_[0], bytes, above, site);
      builder_.post(CallKind::receive_nonblocking, buffers_[1], bytes, below, site + 1);
      builder_.post(CallKind::send, buffers_[2], bytes, above, site + 2);
      builder_.post(CallKind::send, buffers_[3], bytes, below, site + 3);
      builder_.wait();
    }
  }

  ProgramBuilder& builder_;
  const Grid grid_;
  const int points_;
  std::array<Address, 4> buffers_;
};

void write(ProgramBuilder& builder, int points, std::uint64_t iterations) {
  const double n = points;
  const double flops = 58.0 * n * n * n / builder.ranks();
  Writer writer(builder, points);
  writer.residual(0.25 * flops);
  writer.iteration(flops);  // once before the clock is started
  writer.residual(0.25 * flops);
  builder.begin_turn();
  writer.iteration(flops);
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
