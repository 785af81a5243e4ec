// An area: neighbouring hugepages of one backing, cut into chunks of 4 KiB. What a device registers at once
// lies in one area, so it never mixes page sizes.
//
// The records of an area lie apart from its data, in a mapping of their own: this struct, the extent that
// begins or ends at each chunk, and a bit for each hugepage that may have contents. The shard's lock guards
// all but the bits. Those are atomic: the owner of a block marks its hugepages, and two blocks may share one.
#pragma once

#include <atomic>
#include <new>

#include "placement/extent_tree.h"
#include "placement/page_source.h"

namespace pinion {

class ChunkHeap;

struct Area {
  Pages pages;
  ChunkHeap* heap = nullptr;
  Area *next = nullptr, *previous = nullptr;
  std::size_t record_bytes = 0;
  Pages child_copy;  ///< while the process forks: the child's contents

  Extent** extents = nullptr;                  ///< by chunk: valid where an extent begins or ends
  std::atomic<std::uint64_t>* used = nullptr;  ///< by hugepage: may hold other contents than zeros

  const Range& range() const { return pages.range; }
  Extent*& extent_at(Address chunk) const { return extents[(chunk - range().begin) / kChunk]; }
  void place(Extent& extent) const {
    extent_at(extent.begin) = &extent;
    extent_at(extent.end() - kChunk) = &extent;
  }
  Extent* before(const Extent& extent) const {
    return extent.begin == range().begin ? nullptr : extent_at(extent.begin - kChunk);
  }
  Extent* after(const Extent& extent) const {
    return extent.end() == range().end ? nullptr : extent_at(extent.end());
  }

  bool is_used(Address hugepage) const {
    return (word(hugepage).load(std::memory_order_relaxed) & bit(hugepage)) != 0;
  }
  /// Whether it was marked already.
  bool mark_used(Address hugepage) const {
    return (word(hugepage).fetch_or(bit(hugepage), std::memory_order_relaxed) & bit(hugepage)) != 0;
  }
  void mark_unused(Address hugepage) const {
    word(hugepage).fetch_and(~bit(hugepage), std::memory_order_relaxed);
  }

  /// Of an area of so many bytes: the struct, and the two arrays behind it.
  static std::size_t record_size(std::size_t bytes) {
    return sizeof(Area) + bytes / kChunk * sizeof(Extent*) +
           (bytes / kHugepage / 64 + 1) * sizeof(std::uint64_t);
  }
  /// In zeroed memory of that size.
  static Area& make(void* records, std::size_t record_bytes) {
    Area& area = *new (records) Area;
    area.record_bytes = record_bytes;
    return area;
  }
  void take(const Pages& its_pages) {
    pages = its_pages;
    extents = reinterpret_cast<Extent**>(this + 1);
    used = reinterpret_cast<std::atomic<std::uint64_t>*>(extents + range().bytes() / kChunk);
  }

 private:
  std::size_t index(Address hugepage) const { return (hugepage - range().begin) / kHugepage; }
  std::atomic<std::uint64_t>& word(Address hugepage) const { return used[index(hugepage) / 64]; }
  std::uint64_t bit(Address hugepage) const { return std::uint64_t{1} << index(hugepage) % 64; }
};

}  // namespace pinion
