#include "placement/chunk_heap.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace pinion {

namespace {

constexpr std::size_t kLeastArea = std::size_t{32} << 20;
constexpr std::size_t kMostArea = std::size_t{1} << 30;
/// The heap keeps this much free memory with contents, or half of the most that was ever in blocks.
constexpr std::uint64_t kKeptIdle = std::uint64_t{64} << 20;
/// A look at all free extents is worth the time after so many bytes were freed.
constexpr std::uint64_t kFreedBeforeLook = std::uint64_t{16} << 20;

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) & ~(to - 1); }

std::uint32_t chunks_for(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + kChunk - 1) / kChunk);
}

}  // namespace

// ---- blocks ----

Extent* ChunkHeap::allocate(std::size_t bytes, std::size_t alignment) {
  for (;;) {
    Extent* const block = place(bytes, alignment);
    if (block == nullptr) return nullptr;
    if (arena_.blocks().laid_over(block->range()).empty()) {
      tell_devices(*block->area);
      return block;
    }
    set_aside(*block);
  }
}

void ChunkHeap::tell_devices(Area& area) {
  if (area.wanted || !arena_.range().contains(area.range())) return;
  area.wanted = true;
  arena_.devices().want(area.range());
}

/// Leaves the program what it has laid over, like a mapping of the heap's. The rest is free.
void ChunkHeap::set_aside(Extent& block) {
  block.mapped = block.aside = true;
  const Range whole = block.range();
  for (Address at = whole.begin; at < whole.end;) {
    const Range taken = arena_.blocks().laid_over({at, whole.end});
    Range rest{at, taken.empty() ? whole.end : taken.begin};
    if (Idle piece; !rest.empty() && cut_mappings(rest) && take_mapping(rest, piece))
      returned(piece, Fate::kept);
    at = taken.empty() ? whole.end : taken.end;
  }
}

Extent* ChunkHeap::place(std::size_t bytes, std::size_t alignment) {
  const std::uint32_t chunks = chunks_for(bytes);
  if (!spares_.has(2)) return nullptr;
  Address begin = 0;
  Extent* from = free_.fit(chunks, alignment, begin);
  if (from == nullptr) {
    const std::size_t slack = alignment > kChunk ? alignment : 0;
    if (!grow(round_up(bytes + slack, kHugepage))) return nullptr;
    from = free_.fit(chunks, alignment, begin);
    if (from == nullptr) return nullptr;
  }
  Extent* const block = carve(*from, begin, chunks);
  block->state = Extent::State::used;
  figures_.live_bytes += block->bytes();
  figures_.peak_bytes = std::max(figures_.peak_bytes, figures_.live_bytes);
  ++figures_.blocks;
  return block;
}

/// The block's extent. What is left of the free one stays free, before and behind it.
Extent* ChunkHeap::carve(Extent& from, Address begin, std::uint32_t chunks) {
  const Address end = begin + std::size_t{chunks} * kChunk, whole_end = from.end();
  Area& area = *from.area;
  if (from.begin == begin && whole_end == end) {
    free_.remove(from);
    return &from;
  }
  Extent& block = spares_.take();
  block.begin = begin;
  block.chunks = chunks;
  block.area = &area;
  if (from.begin == begin) {
    free_.resize(from, end, from.chunks - chunks);
  } else {
    free_.resize(from, from.begin, chunks_for(begin - from.begin));
    if (end != whole_end) free_.add_rest(from, end, chunks_for(whole_end - end));
  }
  area.place(from);
  area.place(block);
  return &block;
}

Extent& ChunkHeap::free(Extent& block) {
  figures_.live_bytes -= block.bytes();
  freed_since_look_ += block.bytes();
  return free_.add(block);
}

bool ChunkHeap::resize(Extent& block, std::size_t bytes) {
  const std::uint32_t chunks = chunks_for(bytes);
  const Area& area = *block.area;
  if (chunks == block.chunks) return true;
  if (!spares_.has(1)) return false;
  if (chunks < block.chunks) {
    Extent& rest = spares_.take();
    rest.begin = block.begin + std::size_t{chunks} * kChunk;
    rest.chunks = block.chunks - chunks;
    rest.area = block.area;
    block.chunks = chunks;
    area.place(block);
    area.place(rest);
    free(rest);
    return true;
  }
  const std::uint32_t more = chunks - block.chunks;
  Extent* const next = area.after(block);
  if (next == nullptr || next->state != Extent::State::free || next->chunks < more) return false;
  if (!arena_.blocks().laid_over({block.end(), block.end() + std::size_t{more} * kChunk}).empty())
    return false;
  if (next->chunks == more) {
    free_.remove(*next);
    spares_.put(*next);
  } else {
    free_.resize(*next, next->begin + std::size_t{more} * kChunk, next->chunks - more);
    area.place(*next);
  }
  block.chunks = chunks;
  area.place(block);
  figures_.live_bytes += std::size_t{more} * kChunk;
  figures_.peak_bytes = std::max(figures_.peak_bytes, figures_.live_bytes);
  return true;
}

bool ChunkHeap::prepare(const Area& area, Range memory, bool zeroed) {
  if (!arena_.blocks().make_whole(memory)) return false;
  std::uint64_t newly_held = 0;
  for (Address page = memory.begin & ~(kHugepage - 1); page < memory.end; page += kHugepage) {
    const bool was_used = area.mark(area.used, page);
    const bool was_offered = area.is(area.offered, page) && area.unmark(area.offered, page);
    if (!was_used || was_offered) ++newly_held;
    if (!zeroed || !was_used) continue;
    const Address begin = std::max(page, memory.begin), end = std::min(page + kHugepage, memory.end);
    std::memset(reinterpret_cast<void*>(begin), 0, end - begin);
  }
  if (newly_held != 0) held_hugepages_.fetch_add(newly_held, std::memory_order_relaxed);
  return true;
}

// ---- blocks that the program has by mmap ----

/// Calls visit(extent), which returns whether to go on. False: it did not.
template <class Visit>
bool ChunkHeap::for_each_extent_of(const Area& area, Range range, Visit&& visit) {
  if (!area.range().overlaps(range)) return true;
  const Address begin = std::max(range.begin, area.range().begin);
  Extent* at = area.extent_at(begin);  // perhaps of earlier times
  if (at == nullptr || at->area != &area || at->begin != begin) at = area.extent_at(area.range().begin);
  for (; at != nullptr && at->begin < range.end; at = area.after(*at))
    if (at->end() > range.begin && !visit(*at)) return false;
  return true;
}

template <class Visit>
void ChunkHeap::for_each_extent(Range range, Visit&& visit) const {
  for (const Area* area = areas_; area != nullptr && for_each_extent_of(*area, range, visit);)
    area = area->next;
}

template <class Visit>
void ChunkHeap::for_each_block(Range range, Visit&& visit) const {
  for_each_extent(range,
                  [&](Extent& extent) { return extent.state != Extent::State::used || visit(extent); });
}

bool ChunkHeap::cut_mappings(Range range) {
  bool only = spares_.has(2);
  for_each_block(range, [&](const Extent& block) {
    only = only && block.mapped;
    return only;
  });
  if (!only) return false;
  for_each_block(range, [&](Extent& block) {
    if (block.begin < range.begin)
      split(block, range.begin);
    else if (block.end() > range.end)
      split(block, range.end);
    return true;
  });
  return true;
}

std::size_t ChunkHeap::mapped_bytes(Range range) const {
  std::size_t bytes = 0;
  for_each_block(range, [&](const Extent& block) {
    if (block.mapped) bytes += std::min(block.end(), range.end) - std::max(block.begin, range.begin);
    return true;
  });
  return bytes;
}

/// Under the lock: a block is of a mapping once earlier marks there are gone (prepare()).
Range ChunkHeap::take_withheld() {
  Range found;
  for (const Area* area = areas_; area != nullptr && found.empty(); area = area->next) {
    Range left = area->range();
    for (Range run; found.empty() && !(run = arena_.blocks().first_withheld(left)).empty();
         left.begin = run.end)
      for_each_extent_of(*area, run, [&](const Extent& extent) {
        if (extent.state != Extent::State::used || !extent.mapped) return found.empty();
        const Address begin = std::max(extent.begin, run.begin), end = std::min(extent.end(), run.end);
        found = {found.empty() ? begin : found.begin, end};
        return true;
      });
  }
  if (!found.empty()) arena_.blocks().forget_withheld(found);
  return found;
}

bool ChunkHeap::take_mapping(Range& range, Idle& piece) {
  Extent* block = nullptr;
  for (const Area* area = areas_; area != nullptr; area = area->next)
    for_each_extent_of(*area, range, [&](Extent& one) {
      const bool ends = one.state == Extent::State::used && one.mapped && range.contains(one.range());
      if (ends && (block == nullptr || one.begin < block->begin)) block = &one;
      return !ends;
    });
  if (block == nullptr) return false;
  range.begin = block->end();
  figures_.live_bytes -= block->bytes();
  freed_since_look_ += block->bytes();
  block->state = Extent::State::returning;
  const Range whole{round_up(block->begin, kHugepage), block->end() & ~(kHugepage - 1)};
  piece = {block, whole.begin < whole.end ? whole : Range{}, false};
  return true;
}

void ChunkHeap::take_back(Range range) {
  for (;;) {
    Extent* found = nullptr;
    for_each_block(range, [&](Extent& block) {
      const Range common{std::max(block.begin, range.begin), std::min(block.end(), range.end)};
      if (block.aside && arena_.blocks().laid_over(common).empty()) found = &block;
      return found == nullptr;
    });
    if (found == nullptr || !spares_.has(2)) return;
    Extent& upper = found->begin < range.begin ? split(*found, range.begin) : *found;
    if (upper.end() > range.end) split(upper, range.end);
    range.begin = std::min(range.end, free(upper).end());
  }
}

ChunkHeap::Occupied ChunkHeap::occupied(Range range) const {
  Occupied found = Occupied::no;
  for_each_extent(range, [&](const Extent& extent) {
    if (extent.state == Extent::State::returning) found = Occupied::leaves;
    if (extent.state == Extent::State::used) found = Occupied::yes;
    return found != Occupied::yes;
  });
  return found;
}

/// Makes the upper part a block of its own.
Extent& ChunkHeap::split(Extent& block, Address at) {
  Extent& upper = spares_.take();
  upper.begin = at;
  upper.chunks = chunks_for(block.end() - at);
  upper.area = block.area;
  upper.mapped = block.mapped;
  upper.aside = block.aside;
  block.chunks -= upper.chunks;
  block.area->place(block);
  block.area->place(upper);
  return upper;
}

// ---- areas ----

bool ChunkHeap::grow(std::size_t least) {
  std::uint64_t mapped = 0;
  for (const std::uint64_t bytes : figures_.mapped_bytes) mapped += bytes;
  const std::size_t half = round_up(mapped / 2, kHugepage);
  const std::size_t wanted =
      std::max(least, spares_addresses_ ? kLeastArea : std::clamp(half, kLeastArea, kMostArea));
  const std::size_t record_bytes = Area::record_size(wanted);
  void* const records = spares_.has(3) ? records_.map_records(record_bytes) : nullptr;
  if (records == nullptr) return false;
  const Pages pages = arena_.map(least, wanted);
  Area& area = Area::make(records, record_bytes);
  if (!pages.range.empty()) area.take(pages);
  if (pages.range.empty() || !map_.add(area, records_)) {
    if (!pages.range.empty()) arena_.unmap(pages);
    records_.unmap_records(records, record_bytes);
    return false;
  }
  trim_records(area);
  add_area(area);
  return true;
}

/// All of it is free. A spare record is there.
void ChunkHeap::add_area(Area& area) {
  area.heap = this;
  area.number = area_count_++;
  area.next = areas_;
  if (areas_ != nullptr) areas_->previous = &area;
  areas_ = &area;
  rebacked(area, area.pages.backing);
  area.by_charge = records_.charges_untouched() && !area.pages.whole;

  Extent& whole = spares_.take();
  whole.begin = area.range().begin;
  whole.chunks = chunks_for(area.range().bytes());
  whole.area = &area;
  free_.add_alone(whole);
  area.place(whole);
}

bool ChunkHeap::cut_unused(Address address, bool& has_blocks) {
  Area* area = areas_;
  while (area != nullptr && !area->range().contains({address, address + 1})) area = area->next;
  if (area == nullptr) return false;
  const Extent& tail = *area->extent_at(area->range().end - kChunk);
  has_blocks = tail.state != Extent::State::free || tail.begin != area->range().begin;
  area->wanted = has_blocks;
  if (has_blocks && !area->cut) cut(*area);
  return true;
}

/// Free memory that a device may register for nothing: blocks that come are then registered already.
std::uint64_t ChunkHeap::room_to_register() const {
  constexpr std::uint64_t kPartOfBlocks = 20;
  const std::size_t granule = arena_.granules().bytes();
  std::uint64_t room = figures_.live_bytes / kPartOfBlocks;
  for (const Area* area = areas_; area != nullptr; area = area->next)
    if (area->cut && area->free_bytes > granule)
      room -= std::min<std::uint64_t>(room, area->free_bytes - granule);
  return room;
}

void ChunkHeap::cut(Area& area) {
  Extent& tail = *area.extent_at(area.range().end - kChunk);
  if (tail.begin == area.range().begin) return;
  area.cut = true;
  if (tail.state != Extent::State::free) return;
  const std::size_t record_bytes = Area::record_size(tail.bytes());
  void* const records = spares_.has(1) ? records_.map_records(record_bytes) : nullptr;
  if (records == nullptr) return;
  const Address room_end = arena_.granules().floor(tail.begin + room_to_register());
  const Address at = arena_.cut(area.range(), std::max(tail.begin, room_end));
  if (at == 0) return records_.unmap_records(records, record_bytes);

  Area& rest = Area::make(records, record_bytes);
  rest.take({{at, area.range().end}, area.pages.backing, area.pages.whole});
  trim_records(rest);
  for (Address page = at; page < rest.range().end; page += kHugepage) {
    if (area.is(area.used, page)) rest.mark(rest.used, page);
    if (area.is(area.offered, page)) rest.mark(rest.offered, page);
  }
  if (tail.begin < at) {
    free_.resize(tail, tail.begin, chunks_for(at - tail.begin));
    area.place(tail);
  } else {
    free_.remove(tail);
    spares_.put(tail);
  }
  area.pages.range.end = at;
  figures_.mapped_bytes[static_cast<std::size_t>(area.pages.backing)] -= rest.range().bytes();
  [[maybe_unused]] const bool added = map_.add(rest, records_);
  PINION_ASSERT(added && "its addresses have tables");
  add_area(rest);
}

/// The source has given fewer pages than wanted, perhaps because addresses are short.
void ChunkHeap::trim_records(Area& area) {
  const std::size_t needed = page_ceil(Area::record_size(area.range().bytes()));
  if (needed >= area.record_bytes) return;
  records_.unmap_records(reinterpret_cast<char*>(&area) + needed, area.record_bytes - needed);
  area.record_bytes = needed;
}

void ChunkHeap::rebacked(Area& area, Backing backing) {
  const auto of = [](Backing which) { return static_cast<std::size_t>(which); };
  if (area.pages.backing != backing) figures_.mapped_bytes[of(area.pages.backing)] -= area.range().bytes();
  area.pages.backing = backing;
  std::uint64_t& mapped = figures_.mapped_bytes[of(backing)];
  mapped += area.range().bytes();
  figures_.most_mapped[of(backing)] = std::max(figures_.most_mapped[of(backing)], mapped);
}

std::uint64_t ChunkHeap::touched_bytes() const {
  std::uint64_t bytes = 0;
  for (const Area* area = areas_; area != nullptr; area = area->next)
    for (Address page = area->range().begin; page != area->range().end; page += kHugepage)
      if (area->is(area->used, page)) bytes += kHugepage;
  return bytes;
}

Pages ChunkHeap::forget_area(const Idle& piece) {
  Area& area = *piece.extent->area;
  const Pages pages = area.pages;
  map_.remove(area);
  (area.previous != nullptr ? area.previous->next : areas_) = area.next;
  if (area.next != nullptr) area.next->previous = area.previous;
  figures_.mapped_bytes[static_cast<std::size_t>(pages.backing)] -= pages.range.bytes();
  for (Address page = pages.range.begin; page != pages.range.end; page += kHugepage) {
    if (!area.is_held(page)) continue;
    held_hugepages_.fetch_sub(1, std::memory_order_relaxed);
    figures_.returned_bytes += kHugepage;
  }
  spares_.put(*piece.extent);
  records_.unmap_records(&area, area.record_bytes);
  return pages;
}

// ---- memory for the kernel ----

std::uint64_t ChunkHeap::excess() const {
  const std::uint64_t of_largest_use = spares_addresses_ ? 0 : figures_.peak_bytes / 2;
  const std::uint64_t kept =
      figures_.live_bytes + (records_.charges_untouched() ? 0 : std::max(kKeptIdle, of_largest_use));
  return used_bytes() > kept ? used_bytes() - kept : 0;
}

bool ChunkHeap::has_excess() const {
  return freed_since_look_ >= (records_.charges_untouched() ? kHugepage : kFreedBeforeLook) && excess() != 0;
}

/// The highest hugepages with contents of the free extent, up to `most` bytes. Those of the arena go by
/// whole areas, unless all is to go, or the system charges them: a hole must not lie under a registration.
bool ChunkHeap::idle_part(Extent& extent, std::uint64_t most, Idle& piece) const {
  const Area& area = *extent.area;
  piece = {&extent, {}, extent.range() == area.range()};
  const bool by_area = area.pages.whole;
  if (by_area && piece.whole_area)
    return (records_.charges_untouched() || area.range().bytes() <= most) &&
           arena_.blocks().laid_over(area.range()).empty();
  const bool by_parts = most == UINT64_MAX || records_.charges_untouched();
  if (by_area && !(by_parts && arena_.blocks().may_drop_free(extent.range()))) return false;
  piece.whole_area = piece.whole_area && (spares_addresses_ || most == UINT64_MAX);
  if (piece.whole_area) return true;
  const Range whole{round_up(extent.begin, kHugepage), extent.end() & ~(kHugepage - 1)};
  for (Address page = whole.end; page > whole.begin && piece.hugepages.bytes() < most; page -= kHugepage) {
    const bool counts = area.by_charge       ? area.is(area.charged, page - kHugepage)
                        : most == UINT64_MAX ? area.is(area.used, page - kHugepage)
                                             : area.is_held(page - kHugepage);
    if (!counts) {
      if (piece.hugepages.empty()) continue;
      break;
    }
    piece.hugepages = {page - kHugepage, piece.hugepages.empty() ? page : piece.hugepages.end};
  }
  return !piece.hugepages.empty();
}

std::size_t ChunkHeap::take_idle(Idle* pieces, std::size_t most_pieces, bool everything) {
  freed_since_look_ = 0;
  std::uint64_t left = everything ? UINT64_MAX : excess();
  std::size_t count = 0;
  // A smaller extent has no whole hugepage.
  free_.downwards(chunks_for(kHugepage), [&](Extent& extent) {
    if (count == most_pieces || left == 0) return false;
    Idle& piece = pieces[count];
    if (!idle_part(extent, left, piece)) return true;
    if (!everything) left -= std::min(left, piece.whole_area ? extent.bytes() : piece.hugepages.bytes());
    ++count;
    return true;
  });
  for (std::size_t i = 0; i < count; ++i) {
    free_.remove(*pieces[i].extent);
    pieces[i].extent->state = Extent::State::returning;
  }
  return count;
}

Address ChunkHeap::returned(const Idle& piece, Fate fate) {
  const Area& area = *piece.extent->area;
  for (Address page = piece.hugepages.begin; fate != Fate::kept && page < piece.hugepages.end;
       page += kHugepage) {
    const bool was_held = area.is_held(page);
    if (fate == Fate::offered) area.mark(area.offered, page);
    if (fate == Fate::discarded)
      for (const auto marks : {area.used, area.offered, area.charged}) area.unmark(marks, page);
    if (!was_held) continue;
    held_hugepages_.fetch_sub(1, std::memory_order_relaxed);
    figures_.returned_bytes += kHugepage;
  }
  return free_.add(*piece.extent).end();
}

}  // namespace pinion
