#include "cli/bench/placement_programs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "cli/bench/child_events.h"
#include "cli/bench/mpi.h"
#include "cli/doctor/monitors.h"
#include "cli/run/launch.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

struct Program {
  const char* name;
  CommandLine arguments;
};

struct Times {
  double whole = 0, communication = 0;
};

/// The examples lie beside `pinion` where it was built.
std::string path_of(const char* name) { return (installation() / "bin" / "examples" / name).string(); }

/// An example's own line: "...: 1.234 s, of which communication 0.567 s...".
Times times_in(const std::string& output) {
  constexpr const char* kMiddle = " s, of which communication ";
  const std::size_t middle = output.find(kMiddle);
  if (middle == std::string::npos) throw Failure("the program printed no times");
  const std::size_t begin = output.rfind(' ', middle - 1) + 1;
  Times times;
  if (std::sscanf(output.c_str() + begin, "%lf s, of which communication %lf s", &times.whole,
                  &times.communication) != 2)
    throw Failure("the program printed no times");
  return times;
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
      command.push_back(path_of(program.name));
      command.insert(command.end(), program.arguments.begin(), program.arguments.end());
      const ChildEvents faults = ChildEvents::page_faults(), misses = ChildEvents::tlb_misses();
      const Times times = times_in(output_of(command, {}));
      if (const auto count = faults.count()) subject.page_faults.push_back(*count);
      if (const auto count = misses.count()) subject.tlb_misses.push_back(*count);
      subject.computation.push_back(times.whole - times.communication);
      subject.communication.push_back(times.communication);
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
  const Program programs[] = {{"fft3d", {"--grid", "256x128x128", "--iterations", "8"}},
                              {"halo", {"--tile", "2048", "--width", "16", "--steps", "10"}}};
  for (const Program& program : programs) {
    if (::access(path_of(program.name).c_str(), X_OK) != 0) {
      bench.note(
          fmt::format("{} is missing: the examples lie where Pinion was built", path_of(program.name)));
      continue;
    }
    try {
      measure(bench, families.front(), program);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", program.name, failure.what()));
    }
  }
  bench.note(
      "fft3d, halo: two ranks, the times of rank 0, and the events of all processes; both subjects register "
      "on demand (device emulated, NIC connectx).");
  if (!ChildEvents::tlb_misses().count())
    bench.note("misses of the data TLB: this machine has no counter that this user may read");
}

}  // namespace pinion::cli
