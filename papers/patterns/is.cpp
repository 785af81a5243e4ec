// NAS IS. Sources: Bailey et al., "The NAS Parallel Benchmarks", report RNR-94-007, and "2.0", NAS-95-020
// (keys sorted into buckets, buckets spread so that every rank has about as many keys, one all-to-all of
// differing sizes an iteration); sizes from NAS-02-007 and NAS-03-002; call sites and order of NPB 3.3-MPI.
//
// An iteration: the sizes of 1024 buckets are added up over all ranks and distributed (both below the
// threshold). The sorted keys are sent to the ranks of their buckets. The buckets are dealt out so that each
// rank gets about its share of keys: the same for all here. An operation is a key that is ranked, counted
// with ten operations.
#include "papers/patterns/patterns.h"

namespace pinion::simulate {

namespace {

struct Class {
  char name;
  int keys_log2;
};
constexpr Class kClasses[] = {{'S', 16}, {'W', 20}, {'A', 23}, {'B', 25}, {'C', 27}, {'D', 31}, {'E', 35}};
constexpr std::uint64_t kIterations = 10;

void write(ProgramBuilder& builder, int keys_log2, std::uint64_t iterations) {
  constexpr std::uint64_t kKey = 4;
  const auto ranks = static_cast<std::uint64_t>(builder.ranks());
  const std::uint64_t keys = (std::uint64_t{1} << keys_log2) / ranks;
  const Address sorted = builder.array(keys * kKey), received = builder.array(keys * kKey * 3 / 2);
  std::vector<int> all;
  for (int rank = 0; rank < builder.ranks(); ++rank) all.push_back(rank);
  const auto iteration = [&](Site site) {
    builder.compute(6 * static_cast<double>(keys));
    if (ranks > 1) builder.alltoall(sorted, received, keys * kKey / ranks, all, site);
    builder.compute(4 * static_cast<double>(keys));
  };
  enum InMain : Site { kWarmUp = 1, kTimed };
  iteration(kWarmUp);
  builder.begin_turn();
  iteration(kTimed);
  builder.end_turn(iterations);
}

}  // namespace

Error make_is(const std::string& scale, const std::string& ranks, Pattern& pattern) {
  Error error;
  const Class* of = find_class(kClasses, "is", scale, error);
  if (!of) return error;
  if ((error = read_ranks(ranks, "is", RanksRule::power_of_two, pattern.ranks))) return error;
  if (2 * log2_of(pattern.ranks) > of->keys_log2)
    return Error::make(EINVAL, "pattern is: class %c has too few keys for %d ranks", of->name, pattern.ranks);
  pattern.turns = kIterations;
  pattern.write = [keys = of->keys_log2](ProgramBuilder& builder, std::uint64_t turns) {
    write(builder, keys, turns);
  };
  return {};
}

}  // namespace pinion::simulate
