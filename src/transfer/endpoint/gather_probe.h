// The costs of an endpoint's lists, as pinion_gather_plan() takes them: measured by puts to one peer. Owns
// nothing beyond the call; one thread, which may block. The endpoint is connected.
#pragma once

#include <cstddef>

#include "base/error.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

/// Bytes of the longest put.
inline constexpr std::size_t kProbeBytes = std::size_t{512} << 10;

/// `target`: memory of the peer, of kProbeBytes.
Error measure_gather_costs(Endpoint& endpoint, Peer peer, const RemoteMemory& target,
                           pinion_gather_costs& costs);

}  // namespace pinion::transfer
