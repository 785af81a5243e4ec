// One actor's rings of fixed buffers, opened one after the other as their tables fill up. The tables grow:
// for each hugepage that it pins, the kernel walks the whole table of the ring (to charge the hugepage once).
// With one table of the largest size that walk takes ten times as long as the pin itself.
//
// Owns the rings. Any thread; a ring that the kernel refuses stays refused.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <numeric>

#include "device/kernel/fixed_buffers.h"

namespace pinion {

class FixedBufferRings {
 public:
  static constexpr std::array<std::uint32_t, 8> kTables{64, 192, 256, 512, 1024, 2048, 4096, 8192};
  static_assert(std::accumulate(kTables.begin(), kTables.end(), 0u) == FixedBuffers::kSlots);

  /// FixedBuffers::pin() in the first ring with room, which is `ring` then. ENOSYS: the kernel refuses a
  /// ring.
  int pin(Range pages, FixedBuffers*& ring, FixedBuffers::Chain& chain) {
    for (std::size_t i = 0; i < kTables.size(); ++i) {
      ring = opened(i);
      if (ring == nullptr) return ENOSYS;
      if (const int error = ring->pin(pages, chain); error != ENOSPC) return error;
    }
    return ENOSPC;
  }

  void abandon_after_fork() {
    for (const Lane& lane : lanes_)
      if (lane.ring) lane.ring->abandon_after_fork();
  }

 private:
  struct Lane {
    std::once_flag once;
    std::unique_ptr<FixedBuffers> ring;
  };

  FixedBuffers* opened(std::size_t i) {
    std::call_once(lanes_[i].once, [&] {
      int error = 0;
      lanes_[i].ring = FixedBuffers::open(kTables[i], error);
    });
    return lanes_[i].ring.get();
  }

  std::array<Lane, kTables.size()> lanes_;
};

}  // namespace pinion
