// The libraries and devices that register memory on this node, and Pinion's part there: each installed MPI,
// the RDMA ports, and the interconnects beyond Pinion's reach. For `pinion doctor`.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/finding.h"

namespace pinion::cli {

/// Whether programs here will be met below their libraries, and why.
Finding what_acts();
/// Returns a finding for each MPI and transport, and for each interconnect beyond libibverbs.
std::vector<Finding> what_acts_by_library();

}  // namespace pinion::cli
