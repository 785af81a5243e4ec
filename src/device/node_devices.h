// The RDMA devices of this node as the kernel lists them (/sys/class/infiniband), whether or not libibverbs
// is installed, their files (/dev/infiniband), and those of GPUs. Stateless; ordinary code.
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

/// Lists the ports in the order of their names. For tests, PINION_TEST_INFINIBAND names another directory,
/// its `dev` stands for /dev/infiniband, and its `gpu` for /dev.
std::vector<NodePort> node_ports();

bool has_active_port();

/// Why this process cannot open any RDMA device, listed or not; empty: it can.
std::string closed_to_programs();

/// Whether registrations can reach a NIC here: a port is active, and its device can be opened.
bool reaches_nic();

/// The file by which programs reach this node's GPUs (NVIDIA's or AMD's driver), whether or not this process
/// may open it; empty: there is none.
std::string gpu_file();

}  // namespace pinion
