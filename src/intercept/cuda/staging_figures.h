// The figures of staged copies, in one place. They were measured on one machine (evidence-gpu.md, "Staged
// copies"). Pure values.
#pragma once

#include <cstddef>

#include "base/clock.h"

namespace pinion::cuda::staging {

inline constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

/// Below this a staged copy gains little.
inline constexpr std::size_t kLeastBytes = 512 * kKiB;
/// The threads that copy beside the caller.
inline constexpr int kHelpers = 2;

/// A ring of pinned memory for each context. Its memory is given out in parts of whole slots.
inline constexpr std::size_t kRingBytes = 32 * kMiB, kSlotBytes = kMiB;
inline constexpr std::size_t kSlots = kRingBytes / kSlotBytes;
/// The slots of a copy that is alone. The rest lets others begin.
inline constexpr std::size_t kMostSlots = 24;
/// Two slots are the least that copying and the engine can share.
inline constexpr std::size_t kLeastSlots = 2;
inline constexpr std::size_t kMostRings = 8;

/// The smallest piece. A ring has one event for so many bytes.
inline constexpr std::size_t kLeastPiece = 128 * kKiB;
inline constexpr std::size_t kEvents = kRingBytes / kLeastPiece;

/// The size of the pieces that a copy is cut into: smaller ones fill the engine earlier, larger ones cost
/// fewer calls.
constexpr std::size_t piece_bytes(std::size_t bytes) {
  if (bytes >= 64 * kMiB) return 2 * kMiB;
  if (bytes >= 8 * kMiB) return kMiB;
  if (bytes >= 4 * kMiB) return 512 * kKiB;
  return bytes >= kMiB ? 256 * kKiB : kLeastPiece;
}
/// The most pieces of one copy that are in the ring at a time.
inline constexpr std::size_t kMostInFlight = 32;

/// How long a thread asks for an event, or for other threads' work, before it sleeps. Waking takes 20 us.
inline constexpr Duration kSpin = 30 * kMicrosecond;
/// How often a copy looks whether its stream is idle. If it is not after the first wait, other threads keep
/// it busy, and the copy is left to the driver.
inline constexpr int kRounds = 2;
inline constexpr Duration kLastSpin = 500 * kMicrosecond;
/// The most copies in turn that are left to the driver after such a one.
inline constexpr unsigned kMostLeft = 63;

}  // namespace pinion::cuda::staging
