// The door of the engine for rooms above it that register memory for peers. Leases for their own transfers
// come by the C API (pinion_acquire()); there is no third way.
//
// Any thread while the run lasts. hold(), let_go() and the listeners: outside of hooks.
#pragma once

#include "base/error.h"
#include "base/range.h"
#include "lease/lease.h"

struct pinion_domain;

namespace pinion::peer_memory {

/// Memory that stays registered for peers until let_go(), and the names by which they use it.
struct Hold {
  PeerHold region;
  std::uint64_t remote_address = 0;  ///< of the first page
  std::uint64_t remote_key = 0;
  const Range& pages() const { return region.pages; }
};

/// Registers whole pages with all rights, and holds them. EBUSY: the memory is changing. ENOMEM: there is no
/// memory for Pinion's state of the thread, or no run.
[[nodiscard]] Error hold(pinion_domain* domain, Range pages, Hold& hold);
/// The region is deregistered at once, unless leases are out.
void let_go(const Hold& hold);

/// True: the range is memory of one segment of the arena, as the heap made it. Ordinary code.
bool is_own_segment(Range range);
/// True: one open segment of the arena has the range. Hooks may call it.
bool is_open_segment(Range range);

/// Memory for peers counts against the limits of the run: it is asked for room where leases lack some.
void add(Occupant& occupant);
void remove(Occupant& occupant);

}  // namespace pinion::peer_memory
