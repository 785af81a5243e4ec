#include "placement/hugepage_heap.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/assert.h"
#include "placement/kernel_pages.h"

namespace pinion {

namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 43;  // chunks are counted in 32 bits
constexpr std::size_t kPiecesAtOnce = 16;

/// The thread's turn among the shards; 0: it has none yet.
constinit thread_local std::size_t t_turn = 0;
/// The thread forks in a signal handler inside the heap, without its mutexes.
constinit thread_local bool t_forking_inside = false;

constinit KernelPages g_kernel_pages;
constinit Arena g_process_arena{g_kernel_pages};
constinit HugepageHeap g_process_heap{g_kernel_pages, g_process_arena};

[[noreturn]] void end_process(const char* message) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, message, std::strlen(message));
  std::abort();
}

class KeptErrno {
 public:
  ~KeptErrno() { errno = before_; }

 private:
  int before_ = errno;
};

}  // namespace

HugepageHeap& process_heap() { return g_process_heap; }
Arena& process_arena() { return g_process_arena; }

HugepageHeap::Shard& HugepageHeap::own_shard() {
  if (t_turn == 0) t_turn = threads_.fetch_add(1, std::memory_order_relaxed) + 1;
  return shards_[t_turn % shard_count_];
}

HugepageHeap::Shard& HugepageHeap::shard_of(const Area& area) {
  for (Shard& shard : shards_)
    if (&shard.heap == area.heap) return shard;
  end_process("pinion: the hugepage heap's records are damaged\n");
}

Extent& HugepageHeap::block_at(const Area& area, const void* address) const {
  const auto at = reinterpret_cast<Address>(address);
  Extent* const extent = at % kChunk == 0 ? area.extent_at(at) : nullptr;
  if (extent == nullptr || extent->begin != at || extent->state != Extent::State::used)
    end_process("pinion: free() or realloc() of a pointer that is no block of the hugepage heap\n");
  return *extent;
}

void* HugepageHeap::allocate(std::size_t bytes, std::size_t alignment, bool zeroed) {
  if (bytes > kMostBytes || alignment > kMostBytes || is_inside_heap()) return nullptr;
  Shard& shard = own_shard();
  return allocate_by(shard, zeroed, [&] { return shard.heap.allocate(bytes, std::max(alignment, kChunk)); });
}

void* HugepageHeap::allocate_to_grow(std::size_t bytes) {
  if (bytes > kMostBytes / 2 || is_inside_heap()) return nullptr;
  Shard& shard = own_shard();
  return allocate_by(shard, false, [&] {
    Extent* const block = shard.heap.allocate(2 * bytes, kChunk);
    if (block == nullptr) return shard.heap.allocate(bytes, kChunk);
    shard.heap.resize(*block, bytes);
    return block;
  });
}

/// `place()` returns an extent of the shard, whose mutex is held.
template <class Place>
void* HugepageHeap::allocate_by(Shard& shard, bool zeroed, Place&& place_locked) {
  const KeptErrno kept;
  const auto place = [&]() -> Extent* {
    const HeapLock lock(shard.mutex);
    Extent* const block = place_locked();
    if (block == nullptr || shard.heap.charge(*block)) return block;
    shard.heap.free(*block);
    return nullptr;
  };
  for (;;) {
    Extent* block = place();
    if (block == nullptr && relieve()) block = place();
    if (block == nullptr) return nullptr;
    if (shard.heap.prepare(*block->area, block->range(), zeroed))
      return reinterpret_cast<void*>(block->begin);
    const HeapLock lock(shard.mutex);
    shard.heap.free(*block);
  }
}

void HugepageHeap::free(void* block) {
  if (is_inside_heap()) return;  // stays a block
  const KeptErrno kept;
  Area* const area = map_.find(reinterpret_cast<Address>(block));
  Shard& shard = shard_of(*area);
  bool excess = false;
  const Range whole = block_at(*area, block).range();
  const bool reclaimed = arena_.blocks().reclaim(whole) && undo_left(*area, whole);
  {
    const HeapLock lock(shard.mutex);
    Extent& extent = block_at(*area, block);
    if (reclaimed)
      shard.heap.free(extent);
    else
      extent.mapped = true;  // so that its memory stays out of use
    excess = shard.heap.has_excess();
  }
  if (excess) give_back(shard, false);
}

bool HugepageHeap::resize(void* block, std::size_t bytes) {
  if (bytes > kMostBytes || is_inside_heap()) return false;
  const KeptErrno kept;
  Area& area = *map_.find(reinterpret_cast<Address>(block));
  Shard& shard = shard_of(area);
  const Range before = block_at(area, block).range();
  const Address kept_end = before.begin + page_ceil(bytes);
  if (kept_end < before.end && !undo_left(area, {kept_end, before.end})) return false;
  Address end = 0, new_end = 0;
  {
    const HeapLock lock(shard.mutex);
    Extent& extent = block_at(area, block);
    end = extent.end();
    if (!shard.heap.resize(extent, bytes)) return false;
    if (!shard.heap.charge(extent)) {
      shard.heap.resize(extent, end - extent.begin);
      return false;
    }
    new_end = extent.end();
  }
  if (new_end <= end || shard.heap.prepare(area, {end, new_end}, false)) return true;
  const HeapLock lock(shard.mutex);
  shard.heap.resize(block_at(area, block), end - reinterpret_cast<Address>(block));
  return false;
}

void HugepageHeap::note_left(Range range, Left left) {
  const Range pages = range.to_pages();
  for (Address at = pages.begin; at < pages.end;) {
    const Range hugepage{at & ~(kHugepage - 1), (at & ~(kHugepage - 1)) + kHugepage};
    const Range part{at, std::min(hugepage.end, pages.end)};
    at = part.end;
    Area* const area = map_.find(part.begin);
    if (area == nullptr) continue;
    (left == Left::locks ? area->locked : area->advised).set(part);
    area->had_marks.store(true, std::memory_order_release);
  }
}

/// Before memory of a block is free. False: the kernel refuses, and the memory must stay out of use.
bool HugepageHeap::undo_left(Area& area, Range range) {
  if (!area.had_marks.load(std::memory_order_acquire)) return true;
  area.locked.for_each_run(range, true, [this](Range run) { arena_.changes().unlock(run); });
  area.locked.clear(range);
  bool plain = true;
  area.advised.for_each_run(range, true, [&](Range run) {
    if (arena_.blocks().make_plain(run))
      area.advised.clear(run);
    else
      plain = false;
  });
  return plain;
}

std::size_t HugepageHeap::usable_bytes(const void* block) const {
  // The owner of a block may read its record: nobody else changes it.
  const Area& area = *map_.find(reinterpret_cast<Address>(block));
  return block_at(area, block).bytes();
}

// ---- mappings ----

bool HugepageHeap::is_open() {
  if (is_inside_heap()) return false;
  if (t_forking) return true;
  for (Shard& shard : shards_)
    if (!shard.mutex.comes_free()) return false;
  return arena_.is_open();
}

void* HugepageHeap::map(std::size_t bytes) {
  if (bytes > kMostBytes || !is_open()) return nullptr;
  end_withheld();
  bytes = page_ceil(bytes);
  void* const memory = allocate(bytes, page_size(), true);
  if (memory == nullptr) return nullptr;
  if (!arena_.range().contains(Range::of(memory, bytes))) {
    free(memory);
    return nullptr;
  }
  const Area& area = *map_.find(reinterpret_cast<Address>(memory));
  const HeapLock lock(shard_of(area).mutex);
  block_at(area, memory).mapped = true;
  return memory;
}

/// Mappings that ended by calls past this heap. Blocks of malloc there end by free().
void HugepageHeap::end_withheld() {
  if (!arena_.blocks().withholds()) return;
  for (Shard& shard : shards_) {
    const auto next = [&] {
      const HeapLock lock(shard.mutex);
      return shard.heap.take_withheld();
    };
    for (Range part = next(); !part.empty() && unmap(part);) part = next();
  }
}

bool HugepageHeap::has_mapping(Range range) {
  if (!is_open()) return false;
  std::size_t bytes = 0;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    bytes += shard.heap.mapped_bytes(range);
  }
  return bytes == range.bytes();
}

bool HugepageHeap::unmap(Range range) {
  if (!is_open()) return false;
  const KeptErrno kept;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    if (!shard.heap.cut_mappings(range)) return false;
  }
  for (Shard& shard : shards_) {
    Range left = range;
    for (ChunkHeap::Idle piece;;) {
      {
        const HeapLock lock(shard.mutex);
        if (!shard.heap.take_mapping(left, piece)) break;
      }
      // Before it is free: another thread may have it next.
      const Range ended = piece.extent->range();
      Area& area = *piece.extent->area;
      const bool changed = area.had_marks.load(std::memory_order_acquire) &&
                           (area.advised.any(ended) || area.locked.any(ended));
      const Recycled recycled = arena_.blocks().recycle(ended, changed);
      if (recycled == Recycled::refused) continue;  // taken out for good
      area.advised.clear(ended);
      area.locked.clear(ended);
      const HeapLock lock(shard.mutex);
      const Address end = shard.heap.returned(
          piece, recycled == Recycled::zeroed ? ChunkHeap::Fate::discarded : ChunkHeap::Fate::kept);
      left.begin = std::max(left.begin, end);  // the next look begins at an extent
    }
    const auto has_excess = [&] {
      const HeapLock lock(shard.mutex);
      return shard.heap.has_excess();
    };
    if (has_excess()) give_back(shard, false);
  }
  if (!arena_.blocks().vacate(range)) return true;
  // Other threads looked for memory there meanwhile.
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    shard.heap.take_back(range);
  }
  return true;
}

bool HugepageHeap::lay_over(Range range) {
  return holds_soon([&] { return arena_.blocks().lay_over(range); });
}

bool HugepageHeap::lay_over_free(Range range) {
  bool given = false;
  const auto try_it = [&] {
    std::array<std::optional<HeapLock>, kMostShards> locks;  // all: no block gets there meanwhile
    for (std::size_t i = 0; i < kMostShards; ++i) locks[i].emplace(shards_[i].mutex);
    bool leaves = false;
    for (const Shard& shard : shards_) {
      const ChunkHeap::Occupied occupied = shard.heap.occupied(range);
      if (occupied == ChunkHeap::Occupied::yes) return true;
      leaves = leaves || occupied == ChunkHeap::Occupied::leaves;
    }
    if (leaves) return false;
    if (!arena_.blocks().laid_over(range).empty()) return true;
    given = arena_.blocks().lay_over(range);
    return given;
  };
  return is_open() && holds_soon(try_it) && given;
}

// ---- memory for the kernel ----

ChunkHeap::Fate HugepageHeap::part_with(Range hugepages, bool at_once) {
  if (arena_.range().contains(hugepages))
    return arena_.blocks().drop_free(hugepages, source_.charges_untouched()) ? ChunkHeap::Fate::discarded
                                                                             : ChunkHeap::Fate::kept;
  if (!at_once && source_.offer(hugepages)) return ChunkHeap::Fate::offered;
  return source_.discard(hugepages) ? ChunkHeap::Fate::discarded : ChunkHeap::Fate::kept;
}

bool HugepageHeap::give_back(Shard& shard, bool everything) {
  bool any = false;
  for (;;) {
    ChunkHeap::Idle pieces[kPiecesAtOnce];
    Pages areas[kPiecesAtOnce];
    std::size_t count = 0;
    {
      const HeapLock lock(shard.mutex);
      count = shard.heap.take_idle(pieces, kPiecesAtOnce, everything);
      for (std::size_t i = 0; i < count; ++i)
        if (pieces[i].whole_area) areas[i] = shard.heap.forget_area(pieces[i]);
    }
    bool progress = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (pieces[i].whole_area) {
        arena_.unmap(areas[i]);
        progress = true;
        continue;
      }
      const ChunkHeap::Fate fate = part_with(pieces[i].hugepages, everything);
      const HeapLock lock(shard.mutex);
      shard.heap.returned(pieces[i], fate);
      progress = progress || fate != ChunkHeap::Fate::kept;
    }
    any = any || progress;
    if (!progress || (!everything && count < kPiecesAtOnce)) return any;
  }
}

bool HugepageHeap::relieve() {
  if (is_inside_heap()) return false;
  bool any = false;
  for (Shard& shard : shards_) any = give_back(shard, true) || any;
  return any;
}

void HugepageHeap::spare_addresses() {
  if (is_inside_heap()) return;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    shard.heap.spare_addresses();
  }
}

bool HugepageHeap::cut_unused(Address address) {
  bool has_blocks = true;
  if (is_inside_heap()) return has_blocks;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    if (shard.heap.cut_unused(address, has_blocks)) break;
  }
  return has_blocks;
}

// ---- figures ----

ChunkHeap::Figures HugepageHeap::figures() {
  ChunkHeap::Figures sum;
  if (is_inside_heap()) return sum;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    const ChunkHeap::Figures& f = shard.heap.figures();
    sum.live_bytes += f.live_bytes;
    sum.peak_bytes += f.peak_bytes;
    sum.blocks += f.blocks;
    sum.returned_bytes += f.returned_bytes;
    for (std::size_t i = 0; i < kBackings; ++i) {
      sum.mapped_bytes[i] += f.mapped_bytes[i];
      sum.most_mapped[i] += f.most_mapped[i];
    }
  }
  return sum;
}

std::uint64_t HugepageHeap::used_bytes() const {
  std::uint64_t sum = 0;
  for (const Shard& shard : shards_) sum += shard.heap.used_bytes();
  return sum;
}

std::uint64_t HugepageHeap::touched_bytes() {
  std::uint64_t sum = 0;
  if (is_inside_heap()) return sum;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    sum += shard.heap.touched_bytes();
  }
  return sum;
}

std::uint64_t HugepageHeap::transparent_bytes() {
  if (is_inside_heap()) return 0;
  constexpr std::size_t kMostAreas = 1024;
  std::array<Range, kMostAreas> ranges;
  std::size_t count = 0;
  for (Shard& shard : shards_) {
    const HeapLock lock(shard.mutex);
    for (const Area* area = shard.heap.areas(); area != nullptr && count < kMostAreas; area = area->next)
      ranges[count++] = area->range();
  }
  return pinion::transparent_bytes(ranges.data(), count);
}

// ---- fork ----

namespace {

void copy_blocks(const Area& area, Range copy) {
  for (Address at = area.range().begin; at != area.range().end;) {
    const Extent& extent = *area.extent_at(at);
    if (extent.state == Extent::State::used)
      copy_unseen(extent.range(), copy.begin + (at - area.range().begin));
    at = extent.end();
  }
}

void make_child_copy(const ChildMemory& children, Area& area) {
  area.child_copy = map_private(area.range().bytes());
  const Range copy = area.child_copy.range;
  if (!copy.empty()) {
    copy_blocks(area, copy);
    copy_rights_unseen(area.range(), copy);
    children.leave_out(area.range(), copy);
    return;
  }
  constexpr const char* kRefused =
      "pinion: fork: there is no memory for a copy of blocks in hidden pages: the child cannot use "
      "them\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kRefused, std::strlen(kRefused));
}

}  // namespace

/// Visits the areas that children lack: what the arena hides.
template <class Visit>
void HugepageHeap::for_each_hidden_area(Visit&& visit) {
  for (Shard& shard : shards_)
    for (Area* area = shard.heap.areas(); area != nullptr; area = area->next)
      if (arena_.children().is_hidden(area->range())) visit(shard.heap, *area);
}

/// A handler that has interrupted the heap forks bare: its thread may hold some of the mutexes.
void HugepageHeap::before_fork() NO_THREAD_SAFETY_ANALYSIS {
  t_forking_inside = is_inside_heap();
  if (t_forking_inside) return;
  const KeptErrno kept;
  ++t_held_mutexes;
  for (Shard& shard : shards_) shard.mutex.lock_for_fork();
  arena_.children().before_fork();
  for_each_hidden_area([this](ChunkHeap&, Area& area) { make_child_copy(arena_.children(), area); });
  t_forking = true;
  --t_held_mutexes;
}

bool HugepageHeap::before_other_child() {
  if (t_forking || !is_open()) return false;
  before_fork();
  return true;
}

void HugepageHeap::after_fork_in_parent() NO_THREAD_SAFETY_ANALYSIS {
  if (std::exchange(t_forking_inside, false)) return;
  PINION_ASSERT(t_forking);
  ++t_held_mutexes;
  t_forking = false;
  for_each_hidden_area([](ChunkHeap&, Area& area) {
    unmap_unseen(area.child_copy.range);
    area.child_copy = {};
  });
  arena_.children().after_fork_in_parent();
  for (Shard& shard : shards_) shard.mutex.unlock_after_fork();
  --t_held_mutexes;
}

void HugepageHeap::after_fork_in_child() {
  if (std::exchange(t_forking_inside, false)) return;
  ++t_held_mutexes;
  t_forking = false;
  for_each_hidden_area([](ChunkHeap& heap, Area& area) {
    const Pages copy = std::exchange(area.child_copy, {});
    if (!copy.range.empty() && move_pieces_unseen(copy.range, area.range()))
      heap.rebacked(area, copy.backing);
  });
  arena_.children().after_fork_in_child();
  for (Shard& shard : shards_) shard.mutex.free_in_child();
  --t_held_mutexes;
}

}  // namespace pinion
