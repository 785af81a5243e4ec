// `pinion bench p2p`: what the preload adds to MPI calls of small messages, which it has no use for. The
// messages are those of a program of its own (bench/p2p.cpp), one for each family of MPI, started by that
// family's launcher with and without Pinion.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "bench.h"
#include "launch.h"
#include "log_directory.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

struct Family {
  const char* name;
  CommandLine launcher_options;
};

fs::path this_command() { return fs::read_symlink("/proc/self/exe"); }

std::string program_for(const Family& family) {
  const fs::path prefix = this_command().parent_path().parent_path();
  const fs::path program = prefix / "libexec" / "pinion" / fmt::format("p2p-{}", family.name);
  return ::access(program.c_str(), X_OK) == 0 ? program.string() : "";
}

/// Where machines have several, each has a name of its own as well.
std::string launcher_for(const Family& family) {
  const char* path = std::getenv("PATH");
  const std::string directories = path ? path : "";
  for (const std::string& name : {fmt::format("mpirun.{}", family.name), std::string("mpirun")}) {
    for (std::size_t begin = 0; begin < directories.size();) {
      const std::size_t end = std::min(directories.find(':', begin), directories.size());
      const fs::path launcher = fs::path(directories.substr(begin, end - begin)) / name;
      if (::access(launcher.c_str(), X_OK) == 0) return launcher.string();
      begin = end + 1;
    }
  }
  return "";
}

/// The first line with words in it: launchers frame what they say.
std::string first_words(const std::string& path) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);)
    if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c); })) return line;
  return "no output";
}

/// Nanoseconds a call by case, of one run of both ranks. Throws Failure with what the launcher says.
std::map<std::string, double> run_once(const CommandLine& launcher, const std::string& program,
                                       const CommandLine& under) {
  CommandLine command = launcher;
  command.insert(command.end(), {"-n", "2"});
  command.insert(command.end(), under.begin(), under.end());
  command.insert(command.end(), {program, "2"});
  const TemporaryLogDirectory directory;
  const std::string output = directory.path() + "/output";
  const int status = run_and_wait(command, {}, output);
  if (status != 0)
    throw Failure(fmt::format("{}: status {}: {}", launcher.front(), status, first_words(output)));
  std::map<std::string, double> ns;
  std::ifstream lines(output);
  std::string name;
  for (double value = 0; lines >> name >> value;) ns[name] = value;
  // Where Pinion stays off, it says so first: that run would compare nothing.
  if (ns.empty()) throw Failure(fmt::format("no figures: {}", first_words(output)));
  return ns;
}

void measure(Bench& bench, const Family& family, const std::string& program, const std::string& launcher) {
  CommandLine launch{launcher};
  launch.insert(launch.end(), family.launcher_options.begin(), family.launcher_options.end());
  const std::pair<const char*, CommandLine> subjects[] = {{"none", {}},
                                                          {"pinion", {this_command().string(), "run", "--"}}};
  // By case and subject.
  std::map<std::string, std::map<std::string, std::vector<double>>> samples;
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (const auto& [subject, under] : subjects)
      for (const auto& [name, ns] : run_once(launch, program, under)) samples[name][subject].push_back(ns);
  for (auto& [name, by_subject] : samples)
    for (const char* subject : {"pinion", "none"})
      bench.add(fmt::format("{}-{}", family.name, name), subject, "ns", "ns a call", by_subject[subject]);
}

void run(Bench& bench) {
  bool found = false;
  for (const Family& family : {Family{"openmpi", {"--oversubscribe"}}, Family{"mpich", {}}}) {
    const std::string program = program_for(family);
    const std::string launcher = launcher_for(family);
    if (program.empty() || launcher.empty()) continue;
    found = true;
    try {
      measure(bench, family, program, launcher);
    } catch (const Failure& failure) {
      bench.note(fmt::format("{} was not measured: {}", family.name, failure.what()));
    }
  }
  if (!found) {
    bench.note("No MPI: there is no launcher (mpirun) here, or Pinion was built without an MPI.");
    return;
  }
  bench.note(
      "Messages of 8 bytes between two ranks of this node; `self`: of a rank to itself; `poll`: for one that "
      "does not come. A sample is the best of 40 batches of one run, the runs with and without Pinion by "
      "turns.");
}

const BenchRegistration registration{"p2p", "MPI calls of small messages, with and without Pinion", run};

}  // namespace

}  // namespace pinion::cli
