// The memory that libraries above the verbs front register for themselves and keep for the whole run (UCX's
// and libfabric's pools of bounce buffers), from a run's logs. Pinion's limits include it; those of the
// libraries' own caches do not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runlog/analysis.h"

namespace pinion::cli {

struct LibrariesPart {
  std::uint64_t most_bytes = 0, most_regions = 0;  ///< of one process
  std::uint64_t sum_bytes = 0, sum_regions = 0;    ///< of all
  std::uint64_t processes = 0;
};

/// Leases that were held over the last acquire of their process, for a tenth of its run at least: a transfer
/// that long would not be its last. Throws Failure.
LibrariesPart libraries_part(const std::vector<std::string>& logs);

/// Computes it for a report. Empty if the run did not act below libraries, events are missing, or a process
/// outside of any MPI job may have registered such memory itself.
std::optional<LibrariesPart> held_by_libraries(const runlog::Report& report,
                                               const std::vector<std::string>& logs);

}  // namespace pinion::cli
