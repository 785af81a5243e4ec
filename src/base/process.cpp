#include "base/process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string_view>

#include "base/mix.h"
#include "base/process_stat.h"
#include "base/shown_text.h"

namespace pinion {

namespace {

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {(std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()};
}

std::string proc(int process, const char* name) { return "/proc/" + std::to_string(process) + "/" + name; }

const char* value_of(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? text : nullptr;
}

int first_number(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* text = value_of(name)) return std::atoi(text);
  return -1;
}

/// Slurm numbers batch scripts and interactive shells as if they were ranks, in steps of these numbers or
/// none.
bool in_slurm_step() {
  constexpr unsigned long kFirstSpecialStep = 0xfffffff0;
  const char* step = value_of("SLURM_STEP_ID");
  return step && std::strtoul(step, nullptr, 10) < kFirstSpecialStep;
}

/// The variable that this process has its rank from, or nullptr.
const char* rank_variable() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (value_of(name)) return name;
  return in_slurm_step() && value_of("SLURM_PROCID") ? "SLURM_PROCID" : nullptr;
}

/// "NAME=VALUE" of another process's environment; empty where it has none.
std::string variable_of(int process, std::string_view name) {
  const std::string prefix = std::string(name) + "=";
  std::istringstream variables(content(proc(process, "environ")));
  for (std::string variable; std::getline(variables, variable, '\0');)
    if (variable.starts_with(prefix)) return variable;
  return {};
}
bool has_variable(int process, std::string_view name) { return !variable_of(process, name).empty(); }

}  // namespace

JobPlace job_place() {
  JobPlace place;
  if (const char* variable = rank_variable()) place.rank = first_number({variable});
  place.ranks = first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"});
  place.local_ranks =
      first_number({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"});
  return place;
}

int rank_of(int process) {
  const char* const name = rank_variable();
  if (name == nullptr) return -1;
  const std::string variable = variable_of(process, name);
  return variable.empty() ? -1 : std::atoi(variable.c_str() + std::strlen(name) + 1);
}

int launcher_of_rank() {
  const char* const variable = rank_variable();
  if (variable == nullptr) return 0;
  int process = ::getpid();
  // Scripts and wrappers between a rank and its launcher have the rank too.
  do process = process_stat(process).parent;
  while (process_stat(process).parent > 0 && has_variable(process, variable));
  return process;
}

std::uint64_t job_key() {
  const int launcher = rank_variable() != nullptr ? launcher_of_rank() : ::getpid();
  return mix(mix(mix(1, static_cast<std::uint64_t>(launcher)), process_stat(launcher).started),
             pid_namespace());  // containers number for themselves
}

std::uint32_t run_key() {
  std::string name;
  if (const char* ours = value_of(kRunVariable)) {
    name = ours;
  } else if (const char* job = value_of("PMIX_NAMESPACE")) {
    // Processes that a job spawns are another one of the same launcher: "...@2" beside "...@1", or a number
    // whose lower 16 bits differ.
    name = job;
    const bool number = name.find_first_not_of("0123456789") == std::string::npos;
    name = number ? std::to_string(std::strtoull(job, nullptr, 10) >> 16) : name.substr(0, name.rfind('@'));
  } else if (in_slurm_step() && value_of("SLURM_JOB_ID")) {
    name = std::string("slurm ") + value_of("SLURM_JOB_ID") + "." + value_of("SLURM_STEP_ID");
  }
  if (name.empty()) return 0;
  std::uint64_t hash = 3;
  for (const char c : name) hash = mix(hash, static_cast<unsigned char>(c));
  return std::max(1u, static_cast<std::uint32_t>(hash ^ hash >> 32));
}

std::uint64_t node_key() {
  if (!rank_variable()) return mix(2, 0);
  const std::uint32_t run = run_key();
  return run != 0 ? mix(4, run) : job_key();
}

int most_on_node() {
  if (!rank_variable()) return 0;
  const JobPlace place = job_place();
  return std::max(0, place.local_ranks > 0 ? place.local_ranks : place.ranks);
}

std::string executable_path() {
  char path[PATH_MAX];
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? std::string(path, static_cast<std::size_t>(bytes)) : std::string();
}

std::string command_line() {
  std::string all = content("/proc/self/cmdline");
  // A program that has written another title there leaves a tail of zeros.
  all.erase(all.find_last_not_of('\0') + 1);
  std::istringstream words(all);
  std::string text;
  for (std::string word; std::getline(words, word, '\0');)
    text += (text.empty() ? "" : " ") + pinion::quoted(word);
  return text;
}

}  // namespace pinion
