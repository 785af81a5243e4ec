// Buffers for active messages on the wire, header included. Registered through the endpoint's domain where
// the provider needs registered local memory (FI_MR_LOCAL); else pageable.
//
// Any thread; guarded by its mutex, but grow() calls the device outside of it.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "pinion/pinion.h"

namespace pinion::transfer {

struct WireBuffer {
  std::byte* bytes = nullptr;
  void* descriptor = nullptr;
};

class WirePool {
 public:
  static constexpr std::size_t kBytes = 4096;  ///< a buffer's
  static constexpr std::size_t kBlock = 64;    ///< buffers that are made at once

  /// `domain`: null where nothing needs registration.
  explicit WirePool(pinion_domain* domain) : domain_(domain) {}
  /// No buffer is the provider's any more; the leases were released, if the domain still stands.
  ~WirePool();
  WirePool(const WirePool&) = delete;
  WirePool& operator=(const WirePool&) = delete;

  Error grow();
  /// Returns null if none is free.
  WireBuffer* take();
  void give(WireBuffer* buffer);
  std::size_t made() const;
  /// Called before the domain closes; the memory stays.
  void release();

 private:
  struct Block {
    std::byte* memory = nullptr;
    pinion_lease lease = PINION_LEASE_INIT;
  };

  pinion_domain* const domain_;
  mutable std::mutex mutex_;  ///< guards all below
  std::deque<Block> blocks_;
  std::deque<WireBuffer> buffers_;
  std::vector<WireBuffer*> free_;  ///< with room for all
};

}  // namespace pinion::transfer
