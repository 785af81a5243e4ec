// The heap's middle layer: which chunks of its areas are used, and which are free. One shard of
// hugepage_heap.h.
//
// Owns areas and extents. Every extent, a block or free (free_extents.h), has one record: its first and last
// chunk lead to it, so that free and the look at a neighbour take O(1). Blocks lie in the smallest free
// extent where they fit.
//
// Guarded by the lock of its shard, but for prepare() and used_bytes(), which need none. Takes no other lock
// than the arena's; allocates only from its source.
#pragma once

#include <cstddef>
#include <cstdint>

#include "placement/area_map.h"
#include "placement/arena.h"
#include "placement/free_extents.h"

namespace pinion {

class ChunkHeap {
 public:
  /// `records`: the source of the heap's own records. Areas come from the arena.
  constexpr ChunkHeap(PageSource& records, Arena& arena, AreaMap& map)
      : records_(records), arena_(arena), map_(map), spares_(records) {}
  ChunkHeap(const ChunkHeap&) = delete;
  ChunkHeap& operator=(const ChunkHeap&) = delete;

  // ---- blocks ----

  /// A block that begins at a multiple of `alignment` (a power of two); null: memory is short. Its contents
  /// are undefined until prepare().
  Extent* allocate(std::size_t bytes, std::size_t alignment);
  /// Returns the free extent that has its memory then.
  Extent& free(Extent& block);
  /// Resizes it in place; false: its neighbours are in the way.
  bool resize(Extent& block, std::size_t bytes);

  /// Lets the system charge the block's memory, where it charges what is untouched. False: it has no room.
  bool charge(const Extent& block) {
    if (!records_.charges_untouched()) return true;
    if (block.area->pages.whole) return arena_.blocks().charge(block.range());
    return !block.area->by_charge || block.area->charge(block.range(), records_);
  }
  /// Makes new memory writable, marks its hugepages as used, and clears it if `zeroed`. For the owner of the
  /// block, without the lock. False: the memory cannot be used; once free, it stays out of use.
  bool prepare(const Area& area, Range memory, bool zeroed);

  // ---- blocks that the program has by mmap ----

  /// Free memory on its way back: whole hugepages of an extent, or an area.
  struct Idle {
    Extent* extent = nullptr;
    Range hugepages;
    bool whole_area = false;
  };
  /// Cuts them at the range's ends. False: there are other blocks in it, or records are short.
  bool cut_mappings(Range range);
  /// Bytes of the range that are in such blocks.
  std::size_t mapped_bytes(Range range) const;
  /// Memory of such blocks, side by side, that the program has unmapped past the heap; empty: there is none.
  Range take_withheld();
  /// Takes out the first of them in the range, which cut_mappings() has cut, as a piece on its way back: the
  /// caller reports it by returned(). The range then begins behind it, so that each is looked at once. False:
  /// there are none.
  bool take_mapping(Range& range, Idle& piece);
  /// The program's mappings over free memory there have ended: what was set aside for them is free.
  void take_back(Range range);
  enum class Occupied : std::uint8_t { no, leaves, yes };
  /// Whether blocks are in the range, or memory on its way back.
  Occupied occupied(Range range) const;

  // ---- memory for the kernel ----

  /// A device is about to register the area around the address: what is free behind its last block becomes an
  /// area of its own, but for a small part of what the shard has in blocks. `has_blocks`: whether the area
  /// has any; without them its next block tells devices again. False: another shard has the area.
  bool cut_unused(Address address, bool& has_blocks);
  /// The process's addresses have a limit: areas are small, and free ones go back.
  void spare_addresses() { spares_addresses_ = true; }
  /// Whether enough was freed since the last look, and too much free memory has contents.
  bool has_excess() const;
  /// Takes out idle memory of at least the excess, largest extents first, or `everything`, also what the
  /// kernel was offered; at most so many pieces. The caller gives it back without the lock, and reports each
  /// piece by returned().
  std::size_t take_idle(Idle* pieces, std::size_t most_pieces, bool everything);
  enum class Fate : std::uint8_t { kept, offered, discarded };
  /// Returns the end of the free memory around the piece.
  Address returned(const Idle& piece, Fate fate);
  /// Forgets the piece's area, before it is unmapped: the pages to unmap. The extent is gone after this.
  Pages forget_area(const Idle& piece);

  // ---- figures ----

  struct Figures {
    std::uint64_t live_bytes = 0, peak_bytes = 0;
    std::uint64_t blocks = 0;                    ///< allocated in all
    std::uint64_t mapped_bytes[kBackings] = {};  ///< now
    std::uint64_t most_mapped[kBackings] = {};   ///< at most, each by itself
    std::uint64_t returned_bytes = 0;            ///< in all, or offered
  };
  const Figures& figures() const { return figures_; }
  std::uint64_t used_bytes() const { return held_hugepages_.load(std::memory_order_relaxed) * kHugepage; }
  /// Like used_bytes(), with what the kernel was offered.
  std::uint64_t touched_bytes() const;
  Area* areas() const { return areas_; }
  /// The area has another backing now.
  void rebacked(Area& area, Backing backing);

 private:
  Extent* place(std::size_t bytes, std::size_t alignment);
  void set_aside(Extent& block);
  void tell_devices(Area& area);
  template <class Visit>
  static bool for_each_extent_of(const Area& area, Range range, Visit&& visit);
  template <class Visit>
  void for_each_extent(Range range, Visit&& visit) const;
  template <class Visit>
  void for_each_block(Range range, Visit&& visit) const;
  Extent& split(Extent& block, Address at);
  Extent* carve(Extent& from, Address begin, std::uint32_t chunks);
  bool grow(std::size_t bytes);
  void add_area(Area& area);
  void cut(Area& area);
  std::uint64_t room_to_register() const;
  void trim_records(Area& area);
  bool idle_part(Extent& extent, std::uint64_t most, Idle& piece) const;
  std::uint64_t excess() const;

  PageSource& records_;
  Arena& arena_;
  AreaMap& map_;
  ExtentPool spares_;
  FreeExtents free_{spares_};
  Area* areas_ = nullptr;
  std::uint32_t area_count_ = 0;  ///< in all
  std::uint64_t freed_since_look_ = 0;
  bool spares_addresses_ = false;
  Figures figures_;
  std::atomic<std::uint64_t> held_hugepages_{0};
};

}  // namespace pinion
