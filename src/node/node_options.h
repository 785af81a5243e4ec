// The options of a node's processes together. Filled before threads start, then only read.
#pragma once

#include <cstdint>

#include "base/options.h"

namespace pinion {

/// Which of a node's processes have a helper (node/policy.h).
enum class PolicyKind : std::uint8_t { sleeping, none_if_busy, aggressive, conservative };

struct NodeOptions {
  std::uint64_t node_limit = 0;  ///< bytes of all processes of the job on the node; 0: none
  PolicyKind policy = PolicyKind::sleeping;
  std::uint64_t policy_every = 100;  ///< operations from one look at the node's other processes to the next
};

OptionTable<NodeOptions> node_options();
const char* to_string(PolicyKind kind);

}  // namespace pinion
