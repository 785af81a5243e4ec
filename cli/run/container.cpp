#include "cli/run/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cli/run/notes.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

std::string with_others(const std::string& name, const std::string& value) {
  const char* const others = std::getenv(name.c_str());
  return others && *others ? fmt::format("{},{}", others, value) : value;
}

void bind(Environment& environment, const std::string& prefix, const std::string& logs) {
  const std::string places = fmt::format("{},{}", prefix, logs);
  for (const std::string runtime : {"APPTAINER", "SINGULARITY"}) {
    environment[runtime + "_BIND"] = with_others(runtime + "_BIND", places);
    // A starter with privileges loses LD_PRELOAD. The shell inside would replace `$LIB`.
    environment[runtime + "ENV_LD_PRELOAD"] = with_plain_paths(environment.at("LD_PRELOAD"));
  }
  tell(fmt::format("bound in the container: {} and {} (APPTAINER_BIND, SINGULARITY_BIND)", prefix, logs));
}

void tell_words(const std::string& runtime, const CommandLine& command, const std::string& prefix,
                const std::string& logs) {
  const bool is_bound = std::any_of(command.begin(), command.end(), [&](const std::string& word) {
    return word.find(prefix + ":") != std::string::npos;
  });
  if (!is_bound)
    tell(fmt::format(
        "{0} starts programs without Pinion, unless its command line has: -v {1}:{1}:ro -v {2}:{2} "
        "-e LD_PRELOAD -e PINION",
        runtime, prefix, logs));
}

}  // namespace

void reach_into_container(Environment& environment, const CommandLine& command, const std::string& logs) {
  const std::string runtime = std::filesystem::path(command.front()).filename();
  const std::string prefix = installation();
  if (runtime == "apptainer" || runtime == "singularity")
    bind(environment, prefix, logs);
  else if (runtime == "docker" || runtime == "podman")
    tell_words(runtime, command, prefix, logs);
}

}  // namespace pinion::cli
