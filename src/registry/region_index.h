// The regions of a domain in order of their addresses: blocks of up to 32 regions under one sorted directory.
//
// No region of the index contains another (the domain replaces contained ones), so the order by begin is also
// the order by end, and "which region contains r" is answered by one <=-search: the region with the greatest
// begin not above r.begin also has the greatest end of all those.
//
// Readers take no lock and never wait for more than a writer's few stores. find() may answer wrongly while a
// writer moves entries: its caller believes a region only after leasing it, and a miss only under the
// domain's slow lock. for_each_overlap() is for hooks, which must not miss a region: it validates with the
// version (a sequence lock) and starts over when a writer interfered; it may report a region twice. Writers:
// insert() and erase() under the domain's slow lock; they hold the sequence odd for a few stores only and
// allocate nothing then (reserve() before).
// Memory of blocks and directories is never unmapped.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

#include "base/atomics.h"
#include "base/range.h"
#include "registry/slab.h"

namespace pinion {

/// R has atomic members begin and end (addresses).
template <class R, class Atomics = StdAtomics>
class BasicRegionIndex {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

 public:
  static constexpr std::uint32_t kBlockEntries = 32;

  BasicRegionIndex() = default;
  BasicRegionIndex(const BasicRegionIndex&) = delete;
  BasicRegionIndex& operator=(const BasicRegionIndex&) = delete;

  // ---- readers, any thread, hooks included ----

  /// The region with the greatest begin <= a, or null. Best effort (see above).
  R* find(Address a) const {
    const Directory* directory = directory_.load(std::memory_order_acquire);
    if (!directory) return nullptr;
    const std::uint32_t at = directory->last_not_above(a);
    if (at == kNone) return nullptr;
    const Block* block = directory->entries[at].block.load(std::memory_order_acquire);
    const std::uint32_t i = block->last_not_above(a);
    return i == kNone ? nullptr : block->entries[i].region.load(std::memory_order_acquire);
  }

  /// Calls f(R*) for every region that overlaps r; none is missed that was inserted before the call.
  template <class F>
  void for_each_overlap(Range r, F&& f) const {
    for (;;) {
      const std::uint64_t before = version_.load(std::memory_order_seq_cst);
      if (before & 1) {
        Atomics::relax();
        continue;
      }
      visit(r, f);
      if (version_.load(std::memory_order_seq_cst) == before) return;
    }
  }

  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

  // ---- writers, under the domain's slow lock ----

  /// Makes sure that one insert() needs no memory.
  bool reserve() {
    if (!blocks_.reserve(2)) return false;
    Directory* directory = directory_.load(std::memory_order_relaxed);
    if (directory && directory->count.load(std::memory_order_relaxed) + 2 <= directory->capacity) return true;
    return grow_directory(directory);
  }

  void insert(R* region) {
    Directory* directory = directory_.load(std::memory_order_relaxed);
    const Address key = region->begin.load(std::memory_order_relaxed);
    Writing writing(*this);
    std::uint32_t at = directory->last_not_above(key);
    if (at == kNone) {
      if (directory->count.load(std::memory_order_relaxed) == 0) {
        Block* block = blocks_.take();
        block->count.store(0, std::memory_order_relaxed);
        directory->insert(0, key, block);
      }
      at = 0;
    }
    Block* block = directory->entries[at].block.load(std::memory_order_relaxed);
    if (block->count.load(std::memory_order_relaxed) == kBlockEntries) {
      Block* upper = blocks_.take();
      block->split_into(upper);
      directory->insert(at + 1, upper->entries[0].key.load(std::memory_order_relaxed), upper);
      if (key >= upper->entries[0].key.load(std::memory_order_relaxed)) {
        block = upper;
        ++at;
      }
    }
    block->insert(key, region);
    directory->entries[at].first.store(block->entries[0].key.load(std::memory_order_relaxed),
                                       std::memory_order_release);
    size_.store(size() + 1, std::memory_order_relaxed);
  }

  void erase(R* region) {
    Directory* directory = directory_.load(std::memory_order_relaxed);
    const std::uint32_t at = directory->last_not_above(region->begin.load(std::memory_order_relaxed));
    if (at == kNone) return;
    Block* block = directory->entries[at].block.load(std::memory_order_relaxed);
    const std::uint32_t i = block->last_not_above(region->begin.load(std::memory_order_relaxed));
    if (i == kNone || block->entries[i].region.load(std::memory_order_relaxed) != region) return;
    Writing writing(*this);
    block->erase(i);
    if (block->count.load(std::memory_order_relaxed) == 0) {
      directory->erase(at);
      blocks_.put(block);
    } else {
      directory->entries[at].first.store(block->entries[0].key.load(std::memory_order_relaxed),
                                         std::memory_order_release);
    }
    size_.store(size() - 1, std::memory_order_relaxed);
  }

  /// All regions in order; under the domain's slow lock. Stops when f returns false.
  template <class F>
  void for_each(F&& f) const {
    const Directory* directory = directory_.load(std::memory_order_relaxed);
    if (!directory) return;
    for (std::uint32_t at = 0; at < directory->count.load(std::memory_order_relaxed); ++at) {
      const Block* block = directory->entries[at].block.load(std::memory_order_relaxed);
      for (std::uint32_t i = 0; i < block->count.load(std::memory_order_relaxed); ++i)
        if (!f(block->entries[i].region.load(std::memory_order_relaxed))) return;
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;

  struct Block {
    struct Entry {
      Atomic<Address> key{0};
      Atomic<R*> region{nullptr};
    };
    Atomic<std::uint32_t> count{0};
    Block* next_free = nullptr;
    Entry entries[kBlockEntries];

    std::uint32_t last_not_above(Address a) const {
      const std::uint32_t n = count.load(std::memory_order_acquire);
      std::uint32_t found = kNone;
      for (std::uint32_t i = 0; i < n && entries[i].key.load(std::memory_order_relaxed) <= a; ++i) found = i;
      return found;
    }
    void set(std::uint32_t i, Address key, R* region) {
      entries[i].key.store(key, std::memory_order_relaxed);
      entries[i].region.store(region, std::memory_order_release);
    }
    void copy(std::uint32_t to, const Entry& from) {
      set(to, from.key.load(std::memory_order_relaxed), from.region.load(std::memory_order_relaxed));
    }
    void insert(Address key, R* region) {
      std::uint32_t i = count.load(std::memory_order_relaxed);
      for (; i > 0 && entries[i - 1].key.load(std::memory_order_relaxed) > key; --i) copy(i, entries[i - 1]);
      set(i, key, region);
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    void erase(std::uint32_t i) {
      const std::uint32_t n = count.load(std::memory_order_relaxed) - 1;
      for (; i < n; ++i) copy(i, entries[i + 1]);
      count.store(n, std::memory_order_release);
    }
    void split_into(Block* upper) {
      constexpr std::uint32_t kHalf = kBlockEntries / 2;
      for (std::uint32_t i = kHalf; i < kBlockEntries; ++i) upper->copy(i - kHalf, entries[i]);
      upper->count.store(kBlockEntries - kHalf, std::memory_order_release);
      count.store(kHalf, std::memory_order_release);
    }
  };

  struct Directory {
    struct Entry {
      Atomic<Address> first{0};
      Atomic<Block*> block{nullptr};
    };
    std::uint32_t capacity = 0;
    Atomic<std::uint32_t> count{0};
    Entry entries[1];  // capacity of them

    std::uint32_t last_not_above(Address a) const {
      // Branch-free binary search: the comparison's outcome is as good as random, so a branch would
      // mispredict.
      std::uint32_t n = count.load(std::memory_order_acquire);
      if (n == 0 || entries[0].first.load(std::memory_order_relaxed) > a) return kNone;
      std::uint32_t low = 0;
      while (n > 1) {
        const std::uint32_t half = n / 2;
        low = entries[low + half].first.load(std::memory_order_relaxed) <= a ? low + half : low;
        n -= half;
      }
      return low;
    }
    void copy(std::uint32_t to, const Entry& from) {
      entries[to].first.store(from.first.load(std::memory_order_relaxed), std::memory_order_relaxed);
      entries[to].block.store(from.block.load(std::memory_order_relaxed), std::memory_order_release);
    }
    void insert(std::uint32_t at, Address first, Block* block) {
      const std::uint32_t n = count.load(std::memory_order_relaxed);
      for (std::uint32_t i = n; i > at; --i) copy(i, entries[i - 1]);
      entries[at].first.store(first, std::memory_order_relaxed);
      entries[at].block.store(block, std::memory_order_release);
      count.store(n + 1, std::memory_order_release);
    }
    void erase(std::uint32_t at) {
      const std::uint32_t n = count.load(std::memory_order_relaxed) - 1;
      for (std::uint32_t i = at; i < n; ++i) copy(i, entries[i + 1]);
      count.store(n, std::memory_order_release);
    }
  };

  /// Holds the version odd while entries move.
  class Writing {
   public:
    explicit Writing(BasicRegionIndex& index) : index_(index) {
      index_.version_.fetch_add(1, std::memory_order_seq_cst);
    }
    ~Writing() { index_.version_.fetch_add(1, std::memory_order_seq_cst); }

   private:
    BasicRegionIndex& index_;
  };

  bool grow_directory(Directory* old) {
    const std::uint32_t capacity = old ? old->capacity * 2 : 256;
    const std::size_t bytes = sizeof(Directory) + capacity * sizeof(typename Directory::Entry);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    auto* directory = new (memory) Directory;
    directory->capacity = capacity;
    for (std::uint32_t i = 1; i < capacity; ++i) new (&directory->entries[i]) typename Directory::Entry;
    const std::uint32_t n = old ? old->count.load(std::memory_order_relaxed) : 0;
    for (std::uint32_t i = 0; i < n; ++i) directory->copy(i, old->entries[i]);
    directory->count.store(n, std::memory_order_release);
    Writing writing(*this);
    directory_.store(directory, std::memory_order_release);
    return true;
  }

  template <class F>
  void visit(Range r, F& f) const {
    const Directory* directory = directory_.load(std::memory_order_acquire);
    if (!directory) return;
    const std::uint32_t blocks = directory->count.load(std::memory_order_acquire);
    if (blocks == 0) return;
    // Start at the region that r.begin falls behind, go back while regions still reach into r, then forward.
    std::uint32_t at = directory->last_not_above(r.begin);
    if (at == kNone) at = 0;
    for (std::uint32_t back = at; back != kNone; --back) {
      bool reaches = false;
      const Block* block = directory->entries[back].block.load(std::memory_order_acquire);
      for (std::uint32_t i = std::min(block->count.load(std::memory_order_acquire), kBlockEntries);
           i-- > 0;) {
        R* region = block->entries[i].region.load(std::memory_order_acquire);
        const Address begin = block->entries[i].key.load(std::memory_order_relaxed);
        if (!region || begin >= r.end) continue;
        reaches = region->end.load(std::memory_order_relaxed) > r.begin;
        if (!reaches) break;
        f(region);
      }
      if (!reaches) break;
    }
    for (++at; at < blocks; ++at) {
      const Block* block = directory->entries[at].block.load(std::memory_order_acquire);
      const std::uint32_t n = std::min(block->count.load(std::memory_order_acquire), kBlockEntries);
      for (std::uint32_t i = 0; i < n; ++i) {
        if (block->entries[i].key.load(std::memory_order_relaxed) >= r.end) return;
        R* region = block->entries[i].region.load(std::memory_order_acquire);
        if (region && region->end.load(std::memory_order_relaxed) > r.begin) f(region);
      }
    }
  }

  Atomic<std::uint64_t> version_{0};
  Atomic<Directory*> directory_{nullptr};
  Atomic<std::size_t> size_{0};
  Slab<Block> blocks_;
};

}  // namespace pinion
