// The RDMA devices of this node as the kernel lists them (/sys/class/infiniband), whether or not libibverbs
// is installed. Stateless; ordinary code.
#pragma once

#include <string>
#include <vector>

namespace pinion {

struct NodePort {
  std::string device;  ///< mlx5_0
  std::string number;
  std::string state;       ///< ACTIVE, DOWN, INIT
  std::string link_layer;  ///< InfiniBand, Ethernet
  bool active() const { return state == "ACTIVE"; }
};

/// In the order of their names. PINION_TEST_INFINIBAND names another directory, for tests.
std::vector<NodePort> node_ports();

/// Whether registrations can reach a NIC here.
bool has_active_port();

}  // namespace pinion
