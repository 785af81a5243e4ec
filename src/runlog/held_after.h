// Registered memory by the call site that used it last: how long each site's memory stayed registered. Pure
// functions over a log.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "runlog/reader.h"

namespace pinion::runlog {

/// A call site's hash, and its call.
using SiteCall = std::pair<std::uint64_t, std::uint8_t>;

/// Byte nanoseconds: each region counts for the site that used it last; before its first use, for that one.
/// Empty where the log lacks events.
std::map<SiteCall, double> held_after(const Log& log);

}  // namespace pinion::runlog
