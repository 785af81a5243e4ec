// Plays a pattern of the simulator as a real MPI program: `play ft:A:2` in two ranks. Its buffers, messages
// and call sites are those of the pattern; a computation is a fixed number of turns of a loop.
#include <optional>
#include <string>
#include <vector>

#include "../example.h"
#include "buffers.h"
#include "computation.h"
#include "player.h"
#include "steps.h"

namespace {

using pinion::Error;
using play::Computation;

struct Options {
  std::string pattern;
  std::uint64_t turns = 0;
  double gflops = 1;
  double loops = 0;
  bool sleeps = false;
  bool fresh = false;
  bool heap = false;
};

void add_options(CLI::App& app, Options& options) {
  app.add_option("pattern", options.pattern, "NAME:CLASS:RANKS, as in papers simulate --pattern")
      ->required()
      ->type_name("PATTERN");
  app.add_option("--turns", options.turns, "turns of the main loop [as the pattern has it]")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40));
  app.add_option("--gflops", options.gflops, "operations of a rank, in 10^9 a second")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  app.add_option(
         "--loops", options.loops,
         "turns of the loop that computes, a second: as a first run has printed it, so that all runs of "
         "a study compute the same [measured]")
      ->check(CLI::Range(1.0, 1e12));
  app.add_option_function<std::string>(
         "--compute", [&options](const std::string& kind) { options.sleeps = kind == "sleep"; },
         "how a computation passes: loop, or sleep where the processor is emulated")
      ->check(CLI::IsMember({"loop", "sleep"}))
      ->default_str("loop");
  app.add_flag("--fresh", options.fresh,
               "pages of a buffer exist from its first message on, not from the start");
  app.add_flag("--heap", options.heap, "buffers are blocks of malloc, not mappings");
}

/// The quickest rank: the others lost their core meanwhile.
double loops_per_second() {
  double loops = Computation::measured_loops_per_second();
  MPI_Allreduce(MPI_IN_PLACE, &loops, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return loops;
}

/// The steps of all ranks; every rank finds the same fault.
Error read_pattern(const Options& options, int size, std::vector<play::Steps>& ranks) {
  pinion::simulate::Pattern pattern;
  if (Error error = find_pattern(options.pattern, pattern)) return error;
  if (pattern.ranks != size)
    return Error::make(EINVAL, "pattern %s needs %d ranks, as in mpirun -n %d; started with %d",
                       pattern.name.c_str(), pattern.ranks, pattern.ranks, size);
  const pinion::simulate::Machine machine{.flops = options.gflops * 1e9};
  if (Error error = steps_of(pattern, options.turns ? options.turns : pattern.turns, machine, ranks))
    return Error::make(EINVAL, "pattern %s: %s", pattern.name.c_str(), error.message);
  if (sites_of(ranks).size() > play::kMostSites)
    return Error::make(EINVAL, "pattern %s has more than %zu call sites", pattern.name.c_str(),
                       play::kMostSites);
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  example::Mpi mpi(argc, argv);

  Options options;
  CLI::App app("Plays a pattern of pinion simulate as a real program. The pattern gives the number of ranks.",
               "play");
  add_options(app, options);
  if (const auto status = example::parse(mpi, app, argc, argv)) return *status;
  std::vector<play::Steps> ranks;
  if (const Error error = read_pattern(options, mpi.size, ranks))
    return example::usage_error(mpi, app, error.message);

  const auto sites = sites_of(ranks);
  play::Steps& steps = ranks[static_cast<std::size_t>(mpi.rank)];
  if (options.heap && steps.unmaps())
    return example::usage_error(mpi, app, "pattern " + options.pattern + " unmaps its buffers: no --heap");
  const double loops = options.loops > 0 ? options.loops : loops_per_second();
  const Computation computation(options.sleeps ? Computation::Kind::sleep : Computation::Kind::loop, loops);
  const play::Buffers buffers(steps, !options.fresh, options.heap);
  play::Player player(steps, sites, computation);

  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  const bool right = player.play();
  MPI_Barrier(MPI_COMM_WORLD);
  if (mpi.rank == 0)
    std::printf("play: %s: %.4f s; %zu call sites; --loops %.0f\n", options.pattern.c_str(),
                MPI_Wtime() - begin, sites.size(), loops);
  return example::conclude(mpi, app, right);
}
