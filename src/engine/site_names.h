// Names of call sites for the log, from the dynamic symbols of the loaded modules. End of a run only: it is
// slow.
#pragma once

#include "runlog/format.h"

namespace pinion {

/// Fills in `site.name`: "function+0x12 (module) < caller+0x34 (module) ..." of the innermost frames that are
/// not MPI's own (Fortran bindings, tools of the profiling interface); where a function has no dynamic
/// symbol, "module+0x56", which addr2line understands.
void name_site(runlog::SiteEntry& site);

}  // namespace pinion
