// What `pinion compare` ran, and its text and JSON: medians of each row's runs. Values; ordinary code.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/report_json.h"
#include "cli/report/unregistered_uses.h"
#include "cli/run/compare_rows.h"
#include "cli/run/nic_memory.h"
#include "runlog/analysis.h"

namespace pinion::cli {

struct CompareArguments {
  OptionFlags flags;
  std::vector<std::string> rows;  // as named; empty: the default ones
  unsigned repeat = 3;
  std::string log = "pinion-compare.logs";
  bool json = false;
  bool made_log = false;  ///< `log` was made for these runs
  bool no_nic = false;    ///< nothing registers with a NIC here: the device is an emulated one
  CommandLine command;
};

struct ComparedRun {
  std::string logs;
  double elapsed = 0;                     ///< of the command, launch included
  std::optional<runlog::Report> report;   ///< absent where no rank left a log
  std::optional<NicMemory::Figures> nic;  ///< below libraries, where the kernel has a list
  UnregisteredUses unregistered;
};

struct ComparedStrategy {
  Row row;
  OptionFlags flags;      ///< where Pinion runs
  Environment variables;  ///< of a library's cache
  std::vector<ComparedRun> runs;
  std::optional<UnregisteredUses> counted;  ///< of a library's cache, in a run of its own
};

std::string comparison_text(const CompareArguments& arguments,
                            const std::vector<ComparedStrategy>& strategies, bool below);
Json comparison_json(const CompareArguments& arguments, const std::vector<ComparedStrategy>& strategies,
                     bool below);

}  // namespace pinion::cli
