// `pinion bench p2p`: the cost of the preload for MPI calls of small messages, which it passes on, and of
// strategies for messages of several sizes, with a rank on each of two cores and with one rank alone. The
// messages are those of a program of its own (bench/programs/p2p.cpp), one for each family of MPI,
// started by that family's launcher with and without Pinion.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "bench/bench.h"
#include "bench/mpi.h"

namespace pinion::cli {

namespace {

void measure(Bench& bench, const MpiBench& mpi) {
  const std::pair<const char*, CommandLine> subjects[] = {{"none", {}}, {"pinion", under_pinion()}};
  // Samples by case and subject.
  std::map<std::string, std::map<std::string, std::vector<double>>> samples;
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (const auto& [subject, under] : subjects) {
      bench.step(fmt::format("{}, round {} of {}: {}", mpi.family, round + 1, bench.rounds(), subject));
      for (const auto& [name, ns] : run_mpi_bench(mpi, 2, under)) samples[name][subject].push_back(ns);
    }
  for (auto& [name, by_subject] : samples)
    for (const char* subject : {"pinion", "none"})
      bench.add(fmt::format("{}-{}", mpi.family, name), subject, "ns", "ns a call", by_subject[subject]);
}

using Samples = std::map<std::string, std::vector<double>>;  ///< by case and metric: ping-pong-16K.ns

const char* unit_of(const std::string& metric) { return metric.ends_with("ns") ? "ns a call" : "a call"; }

/// `over` beside `under` of the same round.
std::vector<double> ratios(const std::vector<double>& over, const std::vector<double>& under) {
  std::vector<double> of;
  for (std::size_t i = 0; i < std::min(over.size(), under.size()); ++i) of.push_back(over[i] / under[i]);
  return of;
}

void measure_messages(Bench& bench, const MpiBench& mpi, int ranks) {
  const auto under = [](const char* retention) {
    return under_pinion({"--device", "emulated", "--nic", "connectx", "--retention", retention});
  };
  const std::pair<const char*, CommandLine> subjects[] = {{"none", {}},
                                                          {"observe", under("observe")},
                                                          {"leave-pinned", under("leave-pinned")},
                                                          {"pinion", under("helper")}};
  constexpr std::size_t kSubjects = std::size(subjects);
  std::map<std::string, Samples> samples;
  for (std::size_t round = 0; round < bench.rounds(); ++round) {
    for (std::size_t i = 0; i < kSubjects; ++i) {
      const auto& [subject, command] = subjects[(i + round) % kSubjects];
      for (const auto& [figure, value] : run_mpi_bench(mpi, ranks, command, {"messages"}))
        samples[subject][figure].push_back(value);
    }
  }
  for (const auto& [figure, values] : samples["pinion"]) {
    const std::size_t dot = figure.rfind('.');
    const std::string metric = figure.substr(dot + 1);
    const std::string name =
        fmt::format("{}-{}{}", mpi.family, figure.substr(0, dot), ranks == 1 ? "-alone" : "");
    for (const auto& [subject, command] : subjects)
      if (subject == std::string("pinion") || !metric.starts_with("helper"))
        bench.add(name, subject, metric, unit_of(metric), samples[subject][figure]);
    if (metric != "ns") continue;
    bench.add(name, "pinion", "of-leave-pinned", "ratio", ratios(values, samples["leave-pinned"][figure]));
    for (const char* subject : {"observe", "leave-pinned", "pinion"})
      bench.add(name, subject, "of-none", "ratio", ratios(samples[subject][figure], samples["none"][figure]));
  }
}

void run(Bench& bench) {
  const auto families = mpi_benches();
  for (const MpiBench& mpi : families) {
    try {
      measure(bench, mpi);
      for (const int ranks : {2, 1}) measure_messages(bench, mpi, ranks);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", mpi.family, failure.what()));
    }
  }
  if (families.empty()) return bench.note(kNoMpi);
  bench.note(
      "Messages of 8 bytes between two ranks of this node; `self`: of a rank to itself; `poll`: for one that "
      "does not come. A sample is the best of 40 batches of one run, the runs with and without Pinion by "
      "turns.");
  bench.note(
      "Messages of 64 bytes to 4 MiB: a sample is the mean of one run, subjects by turns; device "
      "emulated, NIC connectx. Two ranks keep two cores busy; `alone`: one rank, with itself, leaves a core "
      "to "
      "the helper. `of-leave-pinned`, `of-none`: of the two runs of a round. `switches`: of rank 0's thread; "
      "`helper-...`: "
      "of its helper.");
}

const BenchRegistration registration{"p2p", "MPI calls of small messages, with and without Pinion", run,
                                     kTakesNothing, 3};

}  // namespace

}  // namespace pinion::cli
