// The free extents of a shard: in an order (extent_tree.h), and a list of those that may have free
// neighbours. A freed extent stays as it is: programs free and allocate blocks of one size in turn.
// Neighbours are merged when no free extent is large enough, and before memory goes back to the kernel.
//
// Owns no extents: their records are the pool's and the areas'. Guarded by the lock of its shard.
#pragma once

#include <cstdint>

#include "placement/area.h"
#include "placement/extent_pool.h"

namespace pinion {

class FreeExtents {
 public:
  constexpr explicit FreeExtents(ExtentPool& pool) : pool_(pool) {}

  /// Adds an extent whose neighbours may be free too.
  void add(Extent& extent);
  /// Adds what is left of the free extent `of`, from the address on.
  void add_rest(const Extent& of, Address begin, std::uint32_t chunks);
  /// Adds an extent without free neighbours.
  void add_alone(Extent& extent);
  void remove(Extent& extent);
  /// Gives it other bounds. Its place in the order stays.
  void resize(Extent& extent, Address begin, std::uint32_t chunks);
  /// The first extent in the tree's order that has so many chunks from a multiple of `alignment` on, at
  /// `begin`; null: none has. Beyond some extents that are large enough and misaligned, a later one may be
  /// taken.
  Extent* fit(std::uint32_t chunks, std::size_t alignment, Address& begin) const;
  /// Merges free neighbours. False: there were none.
  bool merge();
  /// Calls visit(extent) for those of at least so many chunks, last one first, until it returns false.
  template <class Visit>
  void from_the_end(std::uint32_t chunks, Visit&& visit) const {
    tree_.from_the_end(chunks, visit);
  }

 private:
  void list(Extent& extent);
  void unlist(Extent& extent);
  Extent& join(Extent& lower, Extent& upper);

  ExtentPool& pool_;
  ExtentTree tree_;
  Extent* unmerged_ = nullptr;  ///< the newest
};

}  // namespace pinion
