// One actor's rings of fixed buffers for pages of one size, opened one after the other as their tables fill
// up. For each hugepage that it pins, the kernel walks the whole table of the ring, and all pages of the
// buffers in it (to charge the hugepage once). So the tables grow: with one of the largest size that walk
// takes ten times as long as the pin itself. And hugepages have rings of their own: beside eight buffers of
// 64 MiB on ordinary pages another one on hugepages took 36 ms and more, and takes a fortieth of one alone.
//
// Owns the rings. Any thread; a ring that the kernel refuses stays refused.
#pragma once

#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>

#include "device/kernel/fixed_buffers.h"

namespace pinion {

class FixedBufferRings {
 public:
  static constexpr std::array<std::uint32_t, 8> kTables{64, 192, 256, 512, 1024, 2048, 4096, 8192};
  static_assert(std::accumulate(kTables.begin(), kTables.end(), 0u) == FixedBuffers::kSlots);

  /// FixedBuffers::pin() in the first ring with room, which is `ring` then. ENOSYS: the kernel refuses a
  /// ring.
  int pin(std::span<const Range> ranges, FixedBuffers*& ring, FixedBuffers::Chain& chain) {
    for (std::size_t i = 0; i < kTables.size(); ++i) {
      ring = opened(i);
      if (ring == nullptr) return ENOSYS;
      if (const int error = ring->pin(ranges, chain); error != ENOSPC) return error;
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
