#include "cli/run/beforehand.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/process.h"
#include "base/units.h"
#include "cli/run/forward.h"
#include "device/node_devices.h"

namespace pinion::cli {

namespace {

bool is_program(const std::string& word) {
  return word.find('/') != std::string::npos && ::access(word.c_str(), X_OK) == 0;
}

/// "-n", "-np", "--ntasks" and the like; the number is the next word.
bool asks_for_ranks(const std::string& word) {
  const std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
  return name == "n" || name == "np" || name == "ntasks";
}

void check_front(const Options& options, const CommandLine& command) {
  if (options.front != Front::verbs || reaches_nic() || hands_environment_on(command)) return;
  throw UsageError(
      fmt::format("--front verbs: no NIC to register with: {}; valid here: --front auto, mpi, cuda",
                  has_active_port() ? closed_to_programs() : "no RDMA port of this node is active"));
}

void check_ranks(const Options& options, const CommandLine& command) {
  const JobPlace place = job_place();
  const auto ranks =
      place.rank >= 0 ? static_cast<std::uint64_t>(std::max(place.ranks, 0)) : ranks_asked_for(command);
  for (std::uint64_t rank = 0; rank < ranks; ++rank)
    if (list_holds(options.only_ranks, static_cast<int>(rank)).value_or(true)) return;
  if (ranks > 0)
    throw UsageError(fmt::format("--only-ranks: '{}' holds no rank of this job, which has {}",
                                 options.only_ranks,
                                 ranks == 1 ? "rank 0 alone" : fmt::format("0-{}", ranks - 1)));
}

}  // namespace

std::uint64_t ranks_asked_for(const CommandLine& command) {
  // Between colons are several programs, each with ranks of its own.
  if (!is_launcher(command) || std::find(command.begin(), command.end(), ":") != command.end()) return 0;
  bool after_option = false;
  for (std::size_t i = 1; i + 1 < command.size(); ++i) {
    const std::string& word = command[i];
    const bool is_option = word.starts_with("-");
    // The program's own words begin here.
    if (!is_option && (!after_option || is_program(word))) return 0;
    if (is_option && asks_for_ranks(word)) return parse_count(command[i + 1]).value_or(0);
    after_option = is_option;
  }
  return 0;
}

void check_beforehand(const Options& options, const CommandLine& command) {
  check_front(options, command);
  check_ranks(options, command);
}

}  // namespace pinion::cli
