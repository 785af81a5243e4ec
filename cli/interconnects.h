// What registers memory on this node, and what Pinion will do there: each MPI that is installed, the RDMA
// ports, and the interconnects whose registrations Pinion does not meet. For `pinion doctor`.
#pragma once

#include <string>
#include <vector>

namespace pinion::cli {

/// A line, and what would change it; empty: nothing need.
struct Finding {
  std::string name, text, cure;
};

/// Whether programs here will be met below their libraries, and why.
Finding what_acts();
/// The same for each MPI and transport, and for each interconnect beyond libibverbs.
std::vector<Finding> what_acts_by_library();

}  // namespace pinion::cli
