// An area: neighbouring hugepages of one backing, cut into chunks of 4 KiB. What a device registers at once
// lies in one area, so it never mixes page sizes.
//
// The records of an area lie apart from its data, in a mapping of their own: this struct, the extent that
// begins or ends at each chunk, three bits for each hugepage, and two for each chunk. The shard's lock guards
// all but the bits. Those are atomic: the owner of a block marks its hugepages, and two blocks may share one.
#pragma once

#include <atomic>
#include <new>

#include "base/assert.h"
#include "placement/chunk_marks.h"
#include "placement/extent_tree.h"
#include "placement/page_source.h"

namespace pinion {

class ChunkHeap;

struct Area {
  Pages pages;
  ChunkHeap* heap = nullptr;
  Area *next = nullptr, *previous = nullptr;
  std::size_t record_bytes = 0;
  std::uint32_t number = 0;    ///< by which areas of the shard are ordered: as they came
  bool wanted = false;         ///< in the arena: a block has come, and devices were told
  bool cut = false;            ///< a device was about to register it: what it did not use was cut off
  bool by_charge = false;      ///< hugepages that are not charged have no rights (PageSource::charge())
  std::size_t free_bytes = 0;  ///< in its free extents
  Pages child_copy;            ///< while the process forks: the child's contents

  Extent** extents = nullptr;  ///< by chunk: valid where an extent begins or ends
  using Bits = std::atomic<std::uint64_t>*;
  Bits used = nullptr;     ///< by hugepage: may hold other contents than zeros
  Bits charged = nullptr;  ///< by hugepage, where by_charge; under the shard's lock
  Bits offered = nullptr;  ///< by hugepage: the kernel may take it, since the last block there ended

  ChunkMarks advised;  ///< the block's owner may have left advice, rights or a memory policy there
  ChunkMarks locked;   ///< the block's owner may have locked it
  std::atomic<bool> had_marks{false};

  const Range& range() const { return pages.range; }
  Extent*& extent_at(Address chunk) const { return extents[(chunk - range().begin) / kChunk]; }
  void place(Extent& extent) const {
    PINION_ASSERT(!extent.range().empty() && range().contains(extent.range()));
    extent_at(extent.begin) = &extent;
    extent_at(extent.end() - kChunk) = &extent;
  }
  Extent* before(const Extent& extent) const {
    return extent.begin == range().begin ? nullptr : extent_at(extent.begin - kChunk);
  }
  Extent* after(const Extent& extent) const {
    return extent.end() == range().end ? nullptr : extent_at(extent.end());
  }

  bool is(Bits bits, Address hugepage) const {
    return (word(bits, hugepage).load(std::memory_order_relaxed) & bit(hugepage)) != 0;
  }
  /// Whether it was marked already.
  bool mark(Bits bits, Address hugepage) const {
    return (word(bits, hugepage).fetch_or(bit(hugepage), std::memory_order_relaxed) & bit(hugepage)) != 0;
  }
  /// Whether it was marked.
  bool unmark(Bits bits, Address hugepage) const {
    return (word(bits, hugepage).fetch_and(~bit(hugepage), std::memory_order_relaxed) & bit(hugepage)) != 0;
  }
  /// Whether the process holds memory for it that nobody has offered to the kernel.
  bool is_held(Address hugepage) const { return is(used, hugepage) && !is(offered, hugepage); }

  /// Charges the hugepages of the range. False: the source refuses.
  bool charge(Range range, PageSource& source) const {
    const Address end = (range.end + kHugepage - 1) & ~(kHugepage - 1);
    for (Address page = range.begin & ~(kHugepage - 1); page < end; page += kHugepage) {
      const Address begin = page;
      while (page < end && !is(charged, page)) page += kHugepage;
      if (page != begin && !source.charge({begin, page})) return false;
      for (Address at = begin; at < page; at += kHugepage) mark(charged, at);
    }
    return true;
  }

  static std::size_t bit_words(std::size_t bytes) { return bytes / kHugepage / 64 + 1; }
  /// Bytes of records for an area of so many bytes: the struct, and the arrays behind it.
  static std::size_t record_size(std::size_t bytes) {
    return sizeof(Area) + bytes / kChunk * sizeof(Extent*) + 3 * bit_words(bytes) * sizeof(std::uint64_t) +
           2 * ChunkMarks::bytes_for({0, bytes});
  }
  /// Makes the record in zeroed memory of that size.
  static Area& make(void* records, std::size_t record_bytes) {
    Area& area = *new (records) Area;
    area.record_bytes = record_bytes;
    return area;
  }
  void take(const Pages& its_pages) {
    pages = its_pages;
    extents = reinterpret_cast<Extent**>(this + 1);
    used = reinterpret_cast<Bits>(extents + range().bytes() / kChunk);
    offered = used + bit_words(range().bytes());
    charged = offered + bit_words(range().bytes());
    char* const marks = reinterpret_cast<char*>(charged + bit_words(range().bytes()));
    advised.begin(range(), marks);
    locked.begin(range(), marks + ChunkMarks::bytes_for(range()));
  }

 private:
  std::size_t index(Address hugepage) const { return (hugepage - range().begin) / kHugepage; }
  std::atomic<std::uint64_t>& word(Bits bits, Address hugepage) const { return bits[index(hugepage) / 64]; }
  std::uint64_t bit(Address hugepage) const { return std::uint64_t{1} << index(hugepage) % 64; }
};

}  // namespace pinion
