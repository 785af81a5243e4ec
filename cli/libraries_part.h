// The memory that libraries above the verbs front register for themselves and keep for the whole run (UCX's
// and libfabric's pools of bounce buffers), from a run's logs. Pinion's limits include it; those of the
// libraries' own caches do not.
#pragma once

#include <cstdint>
#include <string>

namespace pinion::cli {

struct LibrariesPart {
  std::uint64_t most_bytes = 0, most_regions = 0;  ///< of one process
  std::uint64_t sum_bytes = 0;                     ///< of all
  std::uint64_t processes = 0;
};

/// Leases that were held over the last acquire of their process, for a tenth of its run at least: a transfer
/// that long would not be its last. Throws Failure.
LibrariesPart libraries_part(const std::string& logs);

}  // namespace pinion::cli
