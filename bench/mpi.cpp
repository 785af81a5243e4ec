#include "bench/mpi.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

std::string program_for(const char* family) {
  const fs::path program = installation() / "libexec" / "pinion" / fmt::format("p2p-{}", family);
  return ::access(program.c_str(), X_OK) == 0 ? program.string() : "";
}

/// Machines with several launchers name each by its family as well.
std::string launcher_for(const char* family) {
  const std::string launcher = found_in_path(fmt::format("mpirun.{}", family));
  return launcher.empty() ? found_in_path("mpirun") : launcher;
}

/// The first line with words in it: launchers put frames around their messages.
std::string first_words(const std::string& path) {
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);)
    if (std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c); })) return line;
  return "no output";
}

}  // namespace

const char* const kNoMpi = "No MPI: there is no launcher (mpirun) here, or Pinion was built without an MPI.";

std::string found_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string directories = path ? path : "";
  for (std::size_t begin = 0; begin < directories.size();) {
    const std::size_t end = std::min(directories.find(':', begin), directories.size());
    const fs::path program = fs::path(directories.substr(begin, end - begin)) / name;
    if (::access(program.c_str(), X_OK) == 0) return program.string();
    begin = end + 1;
  }
  return "";
}

std::vector<MpiBench> mpi_benches() {
  std::vector<MpiBench> found;
  for (const char* family : {"openmpi", "mpich"}) {
    const std::string program = program_for(family);
    const std::string launcher = launcher_for(family);
    if (program.empty() || launcher.empty()) continue;
    CommandLine launch{launcher};
    if (std::string(family) == "openmpi") {
      launch.push_back("--oversubscribe");
      if (::geteuid() == 0) launch.push_back("--allow-run-as-root");
    }
    found.push_back({family, launch, program});
  }
  return found;
}

std::map<std::string, double> run_mpi_bench(const MpiBench& mpi, int ranks, const CommandLine& under,
                                            const CommandLine& arguments) {
  CommandLine command = mpi.launch;
  command.insert(command.end(), {"-n", std::to_string(ranks)});
  command.insert(command.end(), under.begin(), under.end());
  command.insert(command.end(), {mpi.program, std::to_string(ranks)});
  command.insert(command.end(), arguments.begin(), arguments.end());
  return run_for_figures(command);
}

std::map<std::string, double> run_for_figures(const CommandLine& command) {
  const TemporaryLogDirectory directory;
  const std::string output = directory.path() + "/output";
  const int status = run_and_wait(command, {}, output);
  if (status != 0)
    throw Failure(fmt::format("{}: status {}: {}", command.front(), status, first_words(output)));
  std::map<std::string, double> figures;
  std::ifstream lines(output);
  // Between messages of Pinion and of the launcher.
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, more;
    double value = 0;
    if (words >> name >> value && !(words >> more)) figures[name] = value;
  }
  if (figures.empty()) throw Failure(fmt::format("no figures: {}", first_words(output)));
  return figures;
}

CommandLine under_pinion(const CommandLine& options) {
  CommandLine under{pinion_command(), "run"};
  under.insert(under.end(), options.begin(), options.end());
  under.push_back("--");
  return under;
}

}  // namespace pinion::cli
