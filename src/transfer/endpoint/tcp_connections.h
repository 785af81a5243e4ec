// TCP connections between this process's endpoint and a peer's on the same node: found in the kernel's
// tables, and reset. libfabric keeps them open: `sockets` to the end, and `ofi_rxm` closes them by a
// setting of the whole process only. A provider takes a reset as the peer's end.
//
// Ordinary code, any thread; stateless.
#pragma once

#include <vector>

#include "transfer/bootstrap/bootstrap.h"

namespace pinion::transfer {

/// Bytes that the peer has sent over these connections end there, outside of this process's memory. False:
/// others have the same addresses, or there is no memory to look. `own`: the address of this process's
/// endpoint.
bool reset_tcp_connections(const std::vector<unsigned char>& own, const Card& peer);

}  // namespace pinion::transfer
