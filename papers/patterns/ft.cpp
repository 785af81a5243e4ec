// NAS FT. Sources: Bailey et al., "The NAS Parallel Benchmarks", report RNR-94-007, and "2.0", NAS-95-020
// (1-D layout: slabs, one transposition a transform; 2-D layout: pencils, two transpositions, one within each
// row and one within each column of ranks); sizes from NAS-02-007 and NAS-03-002; call sites, counts and
// order of NPB 3.3-MPI. Operation counts as the benchmark prints them, every transform counted as one of the
// iterations.
//
// Three complex arrays. u0 holds the transformed field and is communicated by the forward transform at the
// start only; each iteration evolves u0 into u1 and transforms that back, through u2. A transposition packs
// one array into another, which an all-to-all sends back into the first, so that each needs two of them. The
// benchmark runs the start twice, once before its clock is started, and calls each time from a line of its
// own.
//
// Instead of a class, a grid may be given: ft:2048x1024x512:16.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "papers/patterns/patterns.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int x, y, z;
  std::uint64_t iterations;
};
constexpr Class kClasses[] = {{'S', 64, 64, 64, 6},       {'W', 128, 128, 32, 6},
                              {'A', 256, 256, 128, 6},    {'B', 512, 256, 256, 20},
                              {'C', 512, 512, 512, 20},   {'D', 2048, 1024, 1024, 25},
                              {'E', 4096, 2048, 2048, 25}};

struct Layout {
  int rows = 1, columns = 1;  ///< of ranks; one row: slabs
};

double points_of(const Class& of) {
  return static_cast<double>(of.x) * static_cast<double>(of.y) * static_cast<double>(of.z);
}
/// Counts a transform back, with evolution and checksum.
double flops_of_iteration(double points) { return points * (5.23518 + 7.21113 * std::log(points)); }

void write(ProgramBuilder& builder, double points, Layout layout, std::uint64_t iterations) {
  constexpr std::uint64_t kComplex = 16;
  const int rank = builder.rank();
  const auto bytes =
      static_cast<std::uint64_t>(points) * kComplex / static_cast<std::uint64_t>(builder.ranks());
  const Address u0 = builder.array(bytes), u1 = builder.array(bytes), u2 = builder.array(bytes);
  const double flops = flops_of_iteration(points) / builder.ranks();

  std::vector<int> row, column;  // of ranks: those that this one exchanges with
  for (int i = 0; i < layout.columns; ++i) row.push_back(rank / layout.columns * layout.columns + i);
  for (int i = 0; i < layout.rows; ++i) column.push_back(i * layout.columns + rank % layout.columns);
  const auto transpose = [&](Address send, Address receive, const std::vector<int>& peers, Site site) {
    if (peers.size() > 1) builder.alltoall(send, receive, bytes / peers.size(), peers, site);
  };
  const bool pencils = layout.rows > 1;

  const auto start = [&](Site caller) {
    builder.compute(flops / 3);
    if (pencils) transpose(u0, u1, column, called_from(caller, 1));
    builder.compute(flops / 3);
    if (pencils)
      transpose(u1, u0, row, called_from(caller, 2));
    else
      transpose(u0, u1, row, called_from(caller, 2));
    builder.compute(flops / 3);
  };
  enum InMain : Site { kWarmUp = 1, kStart, kIteration };
  start(kWarmUp);
  start(kStart);
  builder.begin_turn();
  builder.compute(flops / 3);
  transpose(u2, u1, row, called_from(kIteration, 1));
  builder.compute(flops / 3);
  if (pencils) transpose(u1, u2, column, called_from(kIteration, 2));
  builder.compute(flops / 3);
  builder.end_turn(iterations);
}

/// "2048x1024x512": powers of two.
bool read_grid(const std::string& text, Class& grid) {
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int* const side : {&grid.x, &grid.y, &grid.z}) {
    if (side != &grid.x && (at == end || *at++ != 'x')) return false;
    const auto [stop, failed] = std::from_chars(at, end, *side);
    if (failed != std::errc{} || *side < 2 || *side > 1 << 16 || (*side & (*side - 1)) != 0) return false;
    at = stop;
  }
  return at == end;
}

}  // namespace

Error make_ft(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  Class grid{'-', 0, 0, 0, 25};
  const Class* of = read_grid(scale, grid) ? &grid : find_class(kClasses, "ft", scale, error);
  if (!of) return error;
  Layout layout;
  const std::size_t cross = ranks.find('x');
  if (cross == std::string::npos) {
    if ((error = read_ranks(ranks, "ft", RanksRule::power_of_two, layout.columns))) return error;
    if (layout.columns > of->z) {
      layout.rows = of->z;
      layout.columns /= of->z;
    }
  } else {
    if ((error = read_ranks(ranks.substr(0, cross), "ft", RanksRule::power_of_two, layout.rows)))
      return error;
    if ((error = read_ranks(ranks.substr(cross + 1), "ft", RanksRule::power_of_two, layout.columns)))
      return error;
  }
  // A pencil needs a row of whole points in each direction it is turned to.
  if (layout.columns > std::min(of->x, of->z) || layout.rows > std::min(of->y, of->z))
    return Error::make(EINVAL, "pattern ft: a grid of %dx%dx%d cannot be laid out on %s ranks", of->x, of->y,
                       of->z, ranks.c_str());
  pattern.ranks = layout.rows * layout.columns;
  pattern.turns = of->iterations;
  pattern.write = [points = points_of(*of), layout](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, points, layout, turns);
  };
  return {};
}

}  // namespace pinion::simulate
