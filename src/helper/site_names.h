// Names of call sites for the log, from the dynamic symbols of the loaded modules, and those modules: a
// report finds source lines by them. End of a run only: it is slow.
#pragma once

#include <vector>

#include "runlog/format.h"

namespace pinion {

/// Frames of a site that are named.
constexpr std::uint32_t kNamedFrames = 4;

/// Fills in `site.first_frame` and `site.name`: "function+0x12 (module) < caller+0x34 (module) ..." of the
/// innermost frames that are not MPI's own (Fortran bindings, tools of the profiling interface); where a
/// function has no dynamic symbol, "module+0x56", which addr2line understands.
void name_site(runlog::SiteEntry& site);

/// The loaded modules that hold one of these addresses.
std::vector<runlog::ModuleEntry> modules_with(const std::vector<std::uint64_t>& addresses);

}  // namespace pinion
