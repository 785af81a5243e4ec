// A region: one registration of a domain, from its begin to its return to the slab.
// Memory of regions is never unmapped (RegionSlab), so a pointer to one may be dereferenced for ever; what it
// says is only believed under a lease, or under the domain's slow lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/access.h"
#include "base/clock.h"
#include "base/range.h"
#include "device/device.h"
#include "registry/region_word.h"

namespace pinion {

class Domain;

struct alignas(64) Region {
  RegionWord word;
  // Read by lock-free lookups before they hold a lease, hence atomic; written by the registering thread
  // before commit.
  std::atomic<Address> begin{0};
  std::atomic<Address> end{0};
  std::atomic<Domain*> domain{nullptr};
  std::atomic<Access> access{Access::read};
  std::atomic<std::uint32_t> transitions{0};  ///< changes when `registering` ends; waiters sleep on it

  // Hints for choosing victims, without order among them. The helper writes its own on another line than the
  // one that a hit needs.
  std::atomic<Ticks> last_use{0};             ///< by leaseholders
  alignas(64) std::atomic<Time> next_use{0};  ///< by the helper: predicted; 0: not known

  // Guarded by the domain's slow lock.
  DeviceKey key;
  Region* next_free = nullptr;
  bool indexed = false;

  // Written by the one that claimed the region for reaping.
  Region* next_reaped = nullptr;

  Range range() const { return {begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)}; }
  std::uint32_t generation() const { return word.load().generation(); }
};

/// A region as it was at one time: survives the recycling of the slot.
struct RegionRef {
  Region* region = nullptr;
  std::uint32_t generation = 0;
  bool current() const { return region && region->generation() == generation; }
};

}  // namespace pinion
