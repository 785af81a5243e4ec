// Seconds from the nanoseconds of a log's counters and events.
#pragma once

#include <cstdint>

namespace pinion::runlog {

inline double seconds(double ns) { return ns * 1e-9; }
inline double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace pinion::runlog
