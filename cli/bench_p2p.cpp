// `pinion bench p2p`: what the preload adds to MPI calls of small messages, which it has no use for. The
// messages are those of a program of its own (bench/p2p.cpp), one for each family of MPI, started by that
// family's launcher with and without Pinion.
#include <fmt/format.h>

#include <initializer_list>

#include "bench.h"
#include "bench_mpi.h"

namespace pinion::cli {

namespace {

void measure(Bench& bench, const MpiBench& mpi) {
  const std::pair<const char*, CommandLine> subjects[] = {{"none", {}}, {"pinion", under_pinion()}};
  // By case and subject.
  std::map<std::string, std::map<std::string, std::vector<double>>> samples;
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (const auto& [subject, under] : subjects)
      for (const auto& [name, ns] : run_mpi_bench(mpi, 2, under)) samples[name][subject].push_back(ns);
  for (auto& [name, by_subject] : samples)
    for (const char* subject : {"pinion", "none"})
      bench.add(fmt::format("{}-{}", mpi.family, name), subject, "ns", "ns a call", by_subject[subject]);
}

void run(Bench& bench) {
  const auto families = mpi_benches();
  for (const MpiBench& mpi : families) {
    try {
      measure(bench, mpi);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", mpi.family, failure.what()));
    }
  }
  if (families.empty()) return bench.note(kNoMpi);
  bench.note(
      "Messages of 8 bytes between two ranks of this node; `self`: of a rank to itself; `poll`: for one that "
      "does not come. A sample is the best of 40 batches of one run, the runs with and without Pinion by "
      "turns.");
}

const BenchRegistration registration{"p2p", "MPI calls of small messages, with and without Pinion", run};

}  // namespace

}  // namespace pinion::cli
