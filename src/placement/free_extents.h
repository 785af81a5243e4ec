// The free extents of a shard, in an order (extent_tree.h). A free extent has no free neighbours: merged at
// once, they serve larger blocks before memory that nobody has touched does.
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

  /// Adds an extent, merged with free neighbours. Returns the one that there is then.
  Extent& add(Extent& extent);
  /// Adds what is left of the free extent `of`, from the address on.
  void add_rest(const Extent& of, Address begin, std::uint32_t chunks);
  /// Adds an extent without free neighbours.
  void add_alone(Extent& extent);
  void remove(Extent& extent);
  /// Gives it other bounds.
  void resize(Extent& extent, Address begin, std::uint32_t chunks);
  /// The smallest extent that has so many chunks from a multiple of `alignment` on, at `begin`; null: none
  /// has. Beyond some extents that are large enough and misaligned, a larger one may be taken.
  Extent* fit(std::uint32_t chunks, std::size_t alignment, Address& begin) const;
  /// Calls visit(extent) for those of at least so many chunks, largest first, until it returns false.
  template <class Visit>
  void downwards(std::uint32_t chunks, Visit&& visit) const {
    tree_.downwards(chunks, visit);
  }

 private:
  ExtentPool& pool_;
  ExtentTree tree_;
};

}  // namespace pinion
