#include "cli/run/notes.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>

#include "base/shown_text.h"
#include "cli/text.h"
#include "device/kernel/memlock.h"
#include "device/node_devices.h"
#include "lease/acts.h"
#include "retention/retention_options.h"

namespace pinion::cli {

void tell(const std::string& text) { fmt::print(stderr, "{}", wrapped(printable(text), "pinion: ")); }

std::string raise_memlock(const Options& options) {
  if (!traits_of(options.retention).registers) return "";
  const std::optional<std::size_t> before = pinion::raise_memlock();
  if (!before) return "";
  const Memlock now = memlock();
  return fmt::format(
      "the program's limit of locked memory (RLIMIT_MEMLOCK) is raised from {} to its hard limit, {}",
      bytes_text(static_cast<double>(*before)),
      now.limit == SIZE_MAX ? "unlimited" : bytes_text(static_cast<double>(now.limit)));
}

std::string no_log_text(const Options& options, const std::vector<Unreached>& unreached, int status) {
  const bool below = options.front == Front::verbs, copies = options.front == Front::cuda;
  const bool any = below || copies || may_act_below(options);
  std::string none = any ? "no process left a log: " : "no rank left a log: ";
  if (status != 0) return none + fmt::format("the command failed with exit status {}", status);
  if (!unreached.empty()) return none + unreached.front().line;
  if (!options.except.empty())
    none += fmt::format("--except '{}' leaves executables out; in others, ", options.except);
  if (below) return none + "did the program register memory with an RDMA device?";
  constexpr const char* kCopies = "copy 64 KiB or more to or from a GPU?";
  if (copies) return none + "did the program " + kCopies;
  if (options.front == Front::automatic && !gpu_file().empty())
    return none + "did the program use MPI, or " + kCopies;
  return none +
         (may_act_below(options) ? "did the program use MPI, or register memory with an RDMA device?"
                                 : "did the program use MPI?") +
         " The preload does not reach programs that are static or have file capabilities: `pinion doctor "
         "PROGRAM` names them";
}

}  // namespace pinion::cli
