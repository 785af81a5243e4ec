// NAS CG. Sources: Bailey et al., "The NAS Parallel Benchmarks 2.0", report NAS-95-020 (matrix in blocks on a
// grid of ranks; partial sums of a row of ranks combined by exchanges over hypercube dimensions, then
// exchanged with the transposed rank); sizes from NAS-02-007 and NAS-03-002; call sites, counts and order of
// NPB 3.3-MPI. Operation counts as the benchmark prints them.
//
// An outer iteration is 25 conjugate gradient steps and a residual: 26 products of matrix and vector. A
// product is summed in log2(columns) exchanges of whole local vectors, each a receive into one vector and a
// blocking send of another, and one exchange with the transposed rank. Where there are twice as many columns
// as rows, two neighbouring ranks share a block of rows: in the first exchange each gives the other its half,
// and the others are of the rank's own half. The products of the steps and that of the residual have lines of
// their own; so has the outer iteration before the clock is started.
#include "papers/patterns/patterns.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int rows;
  int nonzeros;
  std::uint64_t iterations;
};
constexpr Class kClasses[] = {{'S', 1400, 7, 15},     {'W', 7000, 8, 15},    {'A', 14000, 11, 15},
                              {'B', 75000, 13, 75},   {'C', 150000, 15, 75}, {'D', 1500000, 21, 100},
                              {'E', 9000000, 26, 100}};

double flops_of_product(double rows, double nonzeros) {
  return 2 * rows * (3 + nonzeros * (nonzeros + 1) + 25 * (5 + nonzeros * (nonzeros + 1)) + 3) / 26;
}

/// The share of block `at` of `blocks` in `rows`.
std::uint64_t share(int rows, int blocks, int at) {
  return static_cast<std::uint64_t>(rows / blocks + (at < rows % blocks));
}

void write(ProgramBuilder& builder, const Class& of, std::uint64_t iterations) {
  const int log = log2_of(builder.ranks());
  const int grid_columns = 1 << ((log + 1) / 2), grid_rows = builder.ranks() / grid_columns;
  const int rank = builder.rank(), row = rank / grid_columns, column = rank % grid_columns;
  const bool square = grid_rows == grid_columns;
  const std::uint64_t local_rows = share(of.rows, grid_rows, row);
  // The transposition sends this rank's part of its row's part of the vector.
  const std::uint64_t first_half = (1 + local_rows) / 2;
  const std::uint64_t part = square ? local_rows : rank % 2 == 0 ? first_half : local_rows - first_half;
  const std::uint64_t part_begin = square || rank % 2 == 0 ? 0 : first_half;
  const std::uint64_t block = share(of.rows, grid_rows, square ? column : column / 2);
  const std::uint64_t received = square ? block : (block + (column % 2 == 0)) / 2;
  const int transposed = square ? rank % grid_rows * grid_columns + rank / grid_rows
                                : 2 * (rank / 2 % grid_rows * grid_rows + rank / 2 / grid_rows) + rank % 2;

  const std::uint64_t room = (static_cast<std::uint64_t>(of.rows / grid_rows) + 2) * kDouble;
  const Address w = builder.array(room), q = builder.array(room), r = builder.array(room);
  const double flops = flops_of_product(of.rows, of.nonzeros) / builder.ranks();

  const auto exchange = [&](Address target, std::uint64_t to_receive, Address from, std::uint64_t to_send,
                            int partner, Site caller, Site line) {
    builder.post(CallKind::receive_nonblocking, target, to_receive * kDouble, partner,
                 called_from(caller, line));
    builder.post(CallKind::send, from, to_send * kDouble, partner, called_from(caller, line + 1));
    builder.wait();
  };
  /// `line`: of the first of its four messages.
  const auto product = [&](Address target, Site caller, Site line) {
    builder.compute(flops);
    for (int i = log2_of(grid_columns), distance = 1; i > 0; --i, distance *= 2) {
      // The dimension with the nearest partner comes first.
      const int partner = row * grid_columns + (column ^ distance);
      const bool whole = !square && distance == 1;
      const std::uint64_t other = local_rows - part;  // the partner's part
      const Address from = w + (whole ? (part_begin == 0 ? part : 0) : part_begin) * kDouble;
      exchange(target + part_begin * kDouble, part, from, whole ? other : part, partner, caller, line);
    }
    if (builder.ranks() > 1)
      exchange(target, received, w + part_begin * kDouble, part, transposed, caller, line + 2);
  };
  const auto outer = [&](Site caller) {
    for (int step = 0; step < 25; ++step) product(q, caller, 1);
    product(r, caller, 5);
  };

  enum InMain : Site { kWarmUp = 1, kTimed };
  outer(kWarmUp);
  builder.begin_turn();
  outer(kTimed);
  builder.end_turn(iterations);
}

}  // namespace

Error make_cg(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const Class* of = find_class(kClasses, "cg", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "cg", RanksRule::power_of_two, pattern.ranks))) return error;
  if (of->rows < pattern.ranks)
    return Error::make(EINVAL, "pattern cg: class %c has %d rows, fewer than %d ranks", of->name, of->rows,
                       pattern.ranks);
  pattern.turns = of->iterations;
  pattern.write = [of = *of](ProgramBuilder& builder, std::uint64_t turns) { write(builder, of, turns); };
  return {};
}

}  // namespace pinion::simulate
