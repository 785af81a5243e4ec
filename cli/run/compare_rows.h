// The rows of `pinion compare`: the program and environment of each, and the command to type.
// Values; ordinary code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/option_flags.h"
#include "cli/report/libraries_part.h"
#include "cli/run/launch.h"

namespace pinion::cli {

/// Without Pinion: `off` for its wall time; `library`, where Pinion would act below the libraries, with the
/// library's own registration cache as the row to compare with.
inline constexpr const char* kOff = "off";
inline constexpr const char* kLibrary = "library";

struct Row {
  std::string name;       ///< as given to --retention
  std::string retention;  ///< kOff, kLibrary or a retention: the name without `-limited`
  bool limited = false;   ///< under the limits, where other rows of the table are not

  bool has_pinion() const { return retention != kOff && retention != kLibrary; }
  bool is_library() const { return retention == kLibrary; }
};

/// Returns the named rows, or else the default ones. Throws UsageError.
std::vector<Row> rows_of(const std::vector<std::string>& names, const Options& options);

/// The options that a row with Pinion runs with, `log` left to the caller. Where rows of the table are
/// limited, the others have no limit of the user's.
OptionFlags flags_of(const Row& row, const std::vector<Row>& rows, OptionFlags flags);

/// The variables by which the libraries' own caches keep to the limits that Pinion keeps to; empty for rows
/// without limit. `part`: memory that the libraries keep beside their caches. Throws Failure where the limit
/// has no room beside that.
Environment library_variables(const Row& row, const Options& options, const LibrariesPart& part);

/// The command as a user would type it.
std::string typed(const Row& row, const OptionFlags& flags, const Environment& variables,
                  const CommandLine& command);

}  // namespace pinion::cli
