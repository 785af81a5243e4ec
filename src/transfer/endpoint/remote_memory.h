// Leased memory as peers name it. Pure.
#pragma once

#include <algorithm>
#include <cstring>

#include "pinion/pinion.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

/// `address` lies in the registration of `keys`.
inline RemoteMemory remote_memory(const pinion_keys& keys, const void* address) {
  RemoteMemory memory{keys.remote_base + (reinterpret_cast<std::uint64_t>(address) - keys.address),
                      keys.remote_key};
  if (keys.raw_key != nullptr) {
    memory.raw.base = keys.remote_base;
    memory.raw.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(keys.raw_key_bytes, RawKey::kMost));
    std::memcpy(memory.raw.data.data(), keys.raw_key, memory.raw.bytes);
  }
  return memory;
}

}  // namespace pinion::transfer
