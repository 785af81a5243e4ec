// Leased memory as peers name it. Pure.
#pragma once

#include "pinion/pinion.h"
#include "transfer/endpoint.h"

namespace pinion::transfer {

/// `address` lies in the registration of `keys`.
inline RemoteMemory remote_memory(const pinion_keys& keys, const void* address) {
  return {keys.remote_base + (reinterpret_cast<std::uint64_t>(address) - keys.address), keys.remote_key};
}

}  // namespace pinion::transfer
