// The other side of `pinion bench gather`: a process that the command forks, whose memory the puts reach.
// Single-threaded; made before the command has threads, or has loaded libfabric.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>

#include "cli/run/log_directory.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::cli {

/// The target of lists: another process of this node.
class GatherTarget {
 public:
  virtual ~GatherTarget() = default;
  virtual transfer::Endpoint& endpoint() = 0;
  virtual transfer::Peer peer() const = 0;
  virtual const transfer::RemoteMemory& memory() const = 0;
};

/// Reaches by a provider of libfabric a process of this node with `bytes` of memory. Throws Failure. Pinion
/// runs as long as it lives.
std::unique_ptr<GatherTarget> make_gather_peer(const std::string& provider, std::size_t bytes);

}  // namespace pinion::cli
