// The figures of call sites, from the events of logs. Pure functions; any thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runlog/analysis.h"

namespace pinion::runlog {

/// Call sites by name and call.
using CallSites = std::map<std::pair<std::string, std::uint8_t>, CallSite>;

void add_call_sites(CallSites& sites, const Log& log);
/// Returns the sites in a report's order.
std::vector<CallSite> list_of(const CallSites& sites);

}  // namespace pinion::runlog
