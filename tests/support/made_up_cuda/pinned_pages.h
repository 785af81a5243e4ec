// Pages pinned as a DMA engine pins them: a transfer uses the pages that were there at the pinning, whatever
// the program has mapped there since. An io_uring's fixed buffers do that.
//
// Owns one ring, made at the first use; one mutex inside. Without io_uring, or without a right to pin, a
// range is used by its addresses, so that stale bytes stay unseen; by_address says so.
#pragma once

#include <vector>

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

struct Pins {
  Range range;
  bool by_address = false;
  std::vector<unsigned> slots;
};

/// Whether this process can pin pages at all.
bool can_pin();

/// Pins the pages of the range. False: there is no memory, or not of a kind that can be pinned so.
/// `read_only` takes memory that may only be read.
bool pin(Range range, bool read_only, Pins& pins);
void unpin(Pins& pins);

/// Moves bytes between pinned pages and a file. False: the addresses are unusable.
bool move_pinned(const Pins& pins, Range range, int file, std::size_t position, bool to_file);

}  // namespace pinion::made_up_cuda
