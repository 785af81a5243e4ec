// An endpoint over libfabric: any provider with reliable datagrams (FI_EP_RDM), messages and RMA. All of its
// memory is registered by Pinion, which runs already (pinion_start()).
//
// Where a peer's put needs this process's help (manual progress: shm, tcp;ofi_rxm, udp;ofi_rxd), a thread
// helps while no other one calls progress() or wait(). Where it does not, the thread only answers peers of
// other nodes, which ask whether this process lives; within one node there is none. Any thread may call
// (endpoint.h); open and close belong to one. A forked child must leave it alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transfer/bootstrap/bootstrap.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion {
struct FabricLibrary;
}

namespace pinion::transfer {

struct FabricEndpointOptions {
  Membership job;
  /// The name that fi_info shows, or its part before the semicolon; empty: the first that pins, else the
  /// first of libfabric's list. The same in all processes.
  std::string provider;
  Duration connect_within = 60 * kSecond;
  /// A peer of another node that answers nothing for so long is gone.
  Duration silence = 30 * kSecond;
};

class FabricEndpoint : public Endpoint {
 public:
  /// Meets the peers: all of them call it, once at most. Each brings a word; returns all, by rank.
  virtual Error meet(std::uint64_t word, std::vector<std::uint64_t>& words) = 0;
  /// Peers' messages arrive from now on; meets the peers before, if meet() was not called. All of them call
  /// it. Once, after handle().
  virtual Error connect() = 0;
  /// Ends operations under way (ECANCELED) after a second at most, and leaves. EBUSY: leases of its domain
  /// are out; return them and call it again. The destructor calls it.
  virtual Error close() = 0;
};

struct FabricEndpointResult {
  Error error;
  std::unique_ptr<FabricEndpoint> endpoint;
};

/// ENOENT, ENOSYS: no libfabric; ENODEV: no such provider, or none with messages and RMA.
FabricEndpointResult open_fabric_endpoint(const FabricEndpointOptions& options);
/// Opens one by functions of the caller's, such as a test's.
FabricEndpointResult open_fabric_endpoint(const FabricLibrary& library, const FabricEndpointOptions& options);

}  // namespace pinion::transfer
