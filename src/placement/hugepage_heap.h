// The heap for large blocks in hugepages, of all threads of the process. Three layers, as Rex, Mietke and
// Rehm have them ("Improving Communication Performance on InfiniBand by Using Efficient Data Placement
// Strategies", 2006): the functions of libc (intercept/malloc/heap.cpp), the management of chunks
// (chunk_heap.h), and the pages, from the arena (arena.h) or the kernel (page_source.h).
//
// Owns up to eight shards, each a ChunkHeap with a mutex; threads are dealt out to them in turn. A block is
// freed in its own shard. The mutexes are leaves (heap_mutex.h): records alone are allocated under one, by
// direct system calls. So code that holds any lock, Pinion's among them,
// may allocate and free here. Memory goes back to the kernel after the mutex is let go, between
// memory_events::begin() and end(), and by libc's functions, so that the hooks of other libraries see it too.
// Any thread. A signal handler that interrupts the heap is refused: blocks come from the next allocator, a
// freed one stays a block, and a fork goes without the mutexes and copies. Its exit leaves no figures.
//
// Policy of return: after each 16 MiB of frees a shard looks at its free hugepages with contents. It keeps as
// many as half of its largest use, and 64 MiB at least; the rest is offered to the kernel, largest extents
// first. The kernel takes it when memory is short; until then a new block there costs no page fault. When the
// kernel or the next allocator refuses memory, all goes back at once. Where the
// process's addresses have a limit, 64 MiB stay in each shard, and free areas are unmapped: threads and
// mappings need addresses too. Where the
// system charges untouched memory (vm.overcommit_memory=2), it looks after 2 MiB and keeps nothing: free
// hugepages lose their rights, which ends the charge. free() itself leaves the block's pages,
// and their registrations, as they are. What the program has left on the pages by madvise, mprotect, mlock or
// mbind is undone: the next owner finds them as fresh.
//
// Fork: the process's mutexes are held across it, and so they are for children of _Fork, clone and syscall
// (intercept/malloc/mappings.cpp). Private pages are copied on write, by the kernel. Blocks in
// pages that children lack, those of pinned segments (arena.h), are copied before, to private pages that take
// their place in the child.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <utility>

#include "placement/chunk_heap.h"

namespace pinion {

class HugepageHeap {
 public:
  /// Areas come from the arena, which takes those beyond it from `source`.
  constexpr HugepageHeap(PageSource& source, Arena& arena);

  /// Allocates a block, zeroed or with any contents. Null: memory is short, even after relieve().
  void* allocate(std::size_t bytes, std::size_t alignment, bool zeroed);
  /// Allocates a block that has grown, and may again: as many bytes behind it are free, if there are so many.
  void* allocate_to_grow(std::size_t bytes);
  /// Frees a block of this heap; ends the process for any other pointer into its areas.
  void free(void* block);
  /// Resizes it in place; false: its neighbours are in the way.
  bool resize(void* block, std::size_t bytes);
  std::size_t usable_bytes(const void* block) const;
  /// Whether the address is in an area. A block begins at a multiple of 4 KiB, so callers look at that first.
  bool owns(const void* address) const { return map_.find(reinterpret_cast<Address>(address)) != nullptr; }

  /// What a program leaves on memory beside its contents.
  enum class Left : std::uint8_t { advice, locks };
  /// The program has left this on memory of its blocks: their end undoes it. Other memory is passed over.
  /// Lock-free.
  void note_left(Range range, Left left);

  /// Memory of zeros that the program has by mmap. Null: the kernel has to serve it.
  void* map(std::size_t bytes);
  /// munmap of addresses that mappings may come from: frees all such memory there. False: there are other
  /// blocks, records are short, or a thread is inside the heap and stays there.
  bool unmap(Range range);
  /// Whether the range is memory of mappings.
  bool has_mapping(Range range);
  /// The program is about to lay a mapping of its own over the memory. False: it stays with another thread.
  bool lay_over(Range range);
  /// Like lay_over(), but false too if the memory is in use.
  bool lay_over_free(Range range);
  /// Whether the thread may wait for the mutexes: it is not inside the heap, nor does another one stay there.
  bool is_open();

  /// Gives all idle memory back to the kernel. Whether there was any.
  bool relieve();

  /// Before other threads allocate.
  void use_shards(std::size_t count) { shard_count_ = std::clamp<std::size_t>(count, 1, kMostShards); }

  /// The process's addresses have a limit from now on.
  void spare_addresses();
  /// Before a device registers the segment around the address: cuts off what the heap does not use of it.
  /// False: no block is left in it.
  bool cut_unused(Address address);

  // The handlers of pthread_atfork(). Between the first and one of the others, the forking thread may
  // allocate and free.
  void before_fork();
  void after_fork_in_parent();
  void after_fork_in_child();
  /// Prepares a child past those handlers, by a system call of the program's. False: the thread is inside the
  /// heap, or forks already, or another one stays inside: the child lacks the blocks in hidden pages.
  bool before_other_child();

  /// Sums over the shards.
  ChunkHeap::Figures figures();
  std::uint64_t used_bytes() const;
  /// Bytes that may have contents, those that the kernel was offered included: it may not have taken them.
  std::uint64_t touched_bytes();
  /// Bytes of the areas of transparent and base pages that are in hugepages now. Ordinary code.
  std::uint64_t transparent_bytes();

 private:
  static constexpr std::size_t kMostShards = 8;
  struct alignas(64) Shard {
    constexpr Shard(PageSource& source, Arena& arena, AreaMap& map) : heap(source, arena, map) {}
    ChunkHeap heap;
    HeapMutex mutex;  ///< guards the heap, as chunk_heap.h has it
  };

  template <std::size_t... i>
  constexpr HugepageHeap(PageSource& source, Arena& arena, std::index_sequence<i...>)
      : source_(source), arena_(arena), shards_{(static_cast<void>(i), Shard(source, arena, map_))...} {}

  template <class Place>
  void* allocate_by(Shard& shard, bool zeroed, Place&& place);
  void end_withheld();
  bool undo_left(Area& area, Range range);
  Shard& own_shard();
  Shard& shard_of(const Area& area);
  Extent& block_at(const Area& area, const void* address) const;
  bool give_back(Shard& shard, bool everything);
  ChunkHeap::Fate part_with(Range hugepages, bool at_once);
  template <class Visit>
  void for_each_hidden_area(Visit&& visit);

  PageSource& source_;
  Arena& arena_;
  AreaMap map_;
  std::size_t shard_count_ = 1;
  std::atomic<std::size_t> threads_{0};
  Shard shards_[kMostShards];
};

// Stands here because Clang needs the other constructor's definition first.
constexpr HugepageHeap::HugepageHeap(PageSource& source, Arena& arena)
    : HugepageHeap(source, arena, std::make_index_sequence<kMostShards>{}) {}

/// The heap of this process, in the kernel's hugepages.
HugepageHeap& process_heap();

}  // namespace pinion
