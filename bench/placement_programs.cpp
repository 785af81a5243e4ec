#include "bench/placement_programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "bench/child_events.h"
#include "bench/mpi.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

struct Program {
  const char* name;  ///< of the case
  std::string path;
  CommandLine arguments;
  const char* input = nullptr;  ///< a file that has to lie in the current directory
};

/// The examples lie beside `pinion` where it was built.
std::string example(const char* name) { return (installation() / "bin" / "examples" / name).string(); }

std::string mpi_times(const char* family) {
  return (installation() / "libexec" / "pinion" / fmt::format("mpi-times-{}.so", family)).string();
}

/// Patterns of NAS benchmarks compute as many turns of a loop in each run.
Program played(const char* name, const char* pattern, const char* turns) {
  return {
      name, example("play"), {pattern, "--turns", turns, "--gflops", "4", "--loops", "1000000000", "--heap"}};
}

std::vector<Program> programs() {
  return {{"fft3d", example("fft3d"), {"--grid", "256x128x128", "--iterations", "8"}},
          {"halo", example("halo"), {"--tile", "2048", "--width", "16", "--steps", "10"}},
          played("play-ft", "ft:A:2", "4"),
          played("play-cg", "cg:A:2", "2"),
          played("play-mg", "mg:A:2", "2"),
          played("play-is", "is:A:2", "4"),
          {"lammps", found_in_path("lmp"), {"-in", "melt.in", "-log", "none"}, "melt.in"},
          {"hpcc", found_in_path("hpcc"), {}, "hpccinf.txt"}};
}

/// Empty where it can be measured here.
std::string obstacle(const Program& program) {
  if (program.path.empty()) return "it is not installed";
  if (::access(program.path.c_str(), X_OK) != 0)
    return fmt::format("{} is missing: the examples lie where Pinion was built", program.path);
  if (program.input != nullptr && ::access(program.input, R_OK) != 0)
    return fmt::format("its input {} is not in the current directory; scripts/paper makes one",
                       program.input);
  return "";
}

void measure(Bench& bench, const MpiBench& mpi, const Program& program) {
  struct Subject {
    const char* name;
    const char* hugepages;
    std::vector<double> computation, communication, page_faults, tlb_misses;
  } subjects[] = {{"base-pages", "no", {}, {}, {}, {}}, {"pinion", "yes", {}, {}, {}, {}}};
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (Subject& subject : subjects) {
      bench.step(
          fmt::format("{}, round {} of {}: {}", program.name, round + 1, bench.rounds(), subject.name));
      CommandLine command = mpi.launch;
      const CommandLine under = under_pinion({"--device", "emulated", "--nic", "connectx", "--retention",
                                              "on-demand", "--hugepages", subject.hugepages});
      command.insert(command.end(), {"-n", "2"});
      command.insert(command.end(), under.begin(), under.end());
      // Ahead of Pinion, so that registrations are part of the calls' time.
      command.insert(command.end(), {"sh", "-c", R"(LD_PRELOAD="$0:$LD_PRELOAD" exec "$@")",
                                     mpi_times(mpi.family), program.path});
      command.insert(command.end(), program.arguments.begin(), program.arguments.end());
      const ChildEvents faults = ChildEvents::page_faults(), misses = ChildEvents::tlb_misses();
      const auto seconds = run_for_figures(command);
      if (const auto count = faults.count()) subject.page_faults.push_back(*count);
      if (const auto count = misses.count()) subject.tlb_misses.push_back(*count);
      if (!seconds.contains("communication_s")) throw Failure("it ends without MPI_Finalize");
      subject.computation.push_back(seconds.at("computation_s"));
      subject.communication.push_back(seconds.at("communication_s"));
    }
  for (const Subject& subject : subjects) {
    bench.add(program.name, subject.name, "computation_s", "s", subject.computation);
    bench.add(program.name, subject.name, "communication_s", "s", subject.communication);
    if (!subject.page_faults.empty())
      bench.add(program.name, subject.name, "page_faults", "faults", subject.page_faults);
    if (!subject.tlb_misses.empty())
      bench.add(program.name, subject.name, "tlb_misses", "misses", subject.tlb_misses);
  }
}

}  // namespace

void measure_programs(Bench& bench) {
  const auto families = mpi_benches();
  if (families.empty()) return bench.note(kNoMpi);
  for (const Program& program : programs()) {
    try {
      if (const std::string reason = obstacle(program); !reason.empty()) throw Failure(reason);
      measure(bench, families.front(), program);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", program.name, failure.what()));
    }
  }
  bench.note(
      "Programs: two ranks, the times of rank 0 in MPI calls and outside of them, and the events of all "
      "processes; both subjects register on demand (device emulated, NIC connectx).");
  if (!ChildEvents::tlb_misses().count())
    bench.note("misses of the data TLB: this machine has no counter that this user may read");
}

}  // namespace pinion::cli
