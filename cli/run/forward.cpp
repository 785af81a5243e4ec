#include "cli/run/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "cli/system_files.h"

namespace pinion::cli {

namespace {

constexpr const char* kOpenMpi4Agent = "OMPI_MCA_orte_fork_agent";
// Open MPI 5's launcher is PRRTE: 3.0.8 (Open MPI 5.0.7) ignores the second variable, a list of options with
// "exec-agent=COMMAND" among them. Where both have an effect, the second comes first.
constexpr const char* kOpenMpi5Agent = "PRTE_MCA_odls_base_exec_agent";
constexpr const char* kOpenMpi5Options = "PRTE_MCA_rtos";
constexpr const char* kSlurmExport = "SLURM_EXPORT_ENV";

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// Open MPI splits the agent's command at spaces and its options at commas, and carries both through a remote
// shell.
std::string encoded(std::string_view text) {
  std::string out;
  for (const unsigned char c : text)
    out += std::isalnum(c) || std::string_view("-_./:").find(c) != std::string_view::npos
               ? std::string(1, static_cast<char>(c))
               : fmt::format("%{:02x}", c);
  return out;
}

std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::strtoul(std::string(text.substr(i + 1, 2)).c_str(), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string agent(const Environment& environment) {
  std::string command = pinion_command() + " run";
  for (const auto& [name, value] : environment)
    if (name != "LD_PRELOAD" && name != "ASAN_OPTIONS")  // the agent makes those of its own node
      command += " --inherit " + encoded(name + "=" + value);
  return command + " --";
}

void tell_open_mpi(Environment& environment) {
  const std::string ours = agent(environment);
  for (const char* name : {kOpenMpi4Agent, kOpenMpi5Agent}) {
    const std::string users = from_environment(name);
    environment[name] = users.empty() ? ours : ours + " " + users;
  }
  const std::string options = from_environment(kOpenMpi5Options);
  if (options.find("exec-agent") == std::string::npos)
    environment[kOpenMpi5Options] =
        "exec-agent=" + environment[kOpenMpi5Agent] + (options.empty() ? "" : "," + options);
}

std::string launcher_of(const CommandLine& command) {
  return std::filesystem::path(command.front()).filename().string();
}

bool is_mpiexec(const CommandLine& command) {
  const std::string launcher = launcher_of(command);
  return launcher.starts_with("mpiexec") || launcher.starts_with("mpirun");
}

void tell_hydra(const Environment& environment, CommandLine& command) {
  const auto restricts = [](const std::string& argument) {
    const std::string_view name = std::string_view(argument).substr(argument.rfind("--", 0) == 0 ? 1 : 0);
    return name == "-genvlist" || name == "-genvnone" || name == "-envlist" || name == "-envnone";
  };
  if (!is_mpiexec(command)) return;
  if (std::none_of(command.begin() + 1, command.end(), restricts)) return;
  CommandLine variables;
  for (const auto& [name, value] : environment) variables.insert(variables.end(), {"-genv", name, value});
  command.insert(command.begin() + 1, variables.begin(), variables.end());
}

void tell_slurm(Environment& environment) {
  const std::string users = from_environment(kSlurmExport);
  if (users.empty() || users.rfind("ALL", 0) == 0) return;
  std::string names = users == "NONE" || users == "NIL" ? "" : users;
  for (const auto& [name, value] : environment) names += (names.empty() ? "" : ",") + name;
  environment[kSlurmExport] = names;
}

}  // namespace

void forward_to_ranks(Environment& environment, CommandLine& command) {
  tell_hydra(environment, command);
  tell_slurm(environment);
  tell_open_mpi(environment);
}

bool is_launcher(const CommandLine& command) { return is_mpiexec(command) || launcher_of(command) == "srun"; }

bool hands_environment_on(const CommandLine& command) {
  const auto names_hosts = [](const std::string& argument) {
    const std::string_view name = std::string_view(argument).substr(argument.starts_with("--") ? 1 : 0);
    return name.starts_with("-host") || name == "-machinefile" || name == "-f";
  };
  if (is_mpiexec(command)) return std::any_of(command.begin() + 1, command.end(), names_hosts);
  return launcher_of(command) == "srun";
}

void inherit(const std::vector<std::string>& inherited) {
  for (const std::string& word : inherited) {
    const std::string variable = decoded(word);
    const auto equals = variable.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("--inherit {}: not NAME=VALUE", word));
    const std::string name = variable.substr(0, equals);
    std::string value = variable.substr(equals + 1);
    if (name == "PINION")
      if (const std::string own = from_environment("PINION"); !own.empty() && own != value)
        value += (value.empty() ? "" : ",") + own;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

}  // namespace pinion::cli
