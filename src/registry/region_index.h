// The regions of a domain in order of their addresses: blocks of up to 32 regions under one sorted directory.
// Both keep their keys together, so that a lookup touches few cache lines. The search is free of branches,
// because their outcome would be as good as random.
//
// No region of the index contains another (the domain replaces contained ones), so the order by begin is also
// the order by end. One <=-search finds the region that contains r: the region with the greatest begin up to
// r.begin also has the greatest end of all those.
//
// Readers are lock-free and never wait for a writer. find() may return a wrong result while a writer moves
// entries: its caller verifies a region by leasing it, and a miss under the domain's slow lock.
// for_each_overlap() is for hooks, which must find every region. A hook may run in a signal handler that has
// interrupted a writer on its own thread; waiting for the writer there would never end. So a writer proceeds
// in counted steps. Between steps every region can be found (one that moves is in two places for a while). A
// reader whose pass saw no step has seen all regions, wherever the writer stands; others start over. A region
// may be reported twice.
//   - One step may be seen in part, so it must be harmless in part: one entry, or the count.
//   - Instead of fences, which ThreadSanitizer does not know, every store of a writer releases and every load
//     of for_each_overlap() acquires: a reader that saw one store of a step sees that the step was counted.
// Writers: insert() and erase() under the domain's slow lock; they are free of allocation (reserve() before).
// Memory of blocks and directories stays mapped.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <new>

#include "base/atomics.h"
#include "base/range.h"
#include "registry/slab.h"

namespace pinion {

/// R has atomic members begin and end (addresses); its end is stored with release order, and no sooner than
/// the region was erased.
template <class R, class Atomics = StdAtomics, std::uint32_t BlockEntries = 32>
class BasicRegionIndex {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

 public:
  static constexpr std::uint32_t kBlockEntries = BlockEntries;

  BasicRegionIndex() = default;
  BasicRegionIndex(const BasicRegionIndex&) = delete;
  BasicRegionIndex& operator=(const BasicRegionIndex&) = delete;

  // ---- readers, any thread, hooks included ----

  /// The region with the greatest begin <= a, or null. Best effort (see above).
  R* find(Address a) const {
    const Directory* directory = directory_.load(std::memory_order_acquire);
    if (!directory) return nullptr;
    const std::uint32_t at = directory->last_not_above(a, std::memory_order_relaxed);
    if (at == kNone) return nullptr;
    const Block* block = directory->blocks()[at].load(std::memory_order_acquire);
    const std::uint32_t i = block->last_not_above(a);
    return i == kNone ? nullptr : block->regions[i].load(std::memory_order_acquire);
  }

  /// Calls f(R*) for every region that overlaps r; it finds all that were inserted before the call.
  template <class F>
  void for_each_overlap(Range r, F&& f) const {
    std::uint64_t before = 0;
    do {
      before = steps_.load(std::memory_order_seq_cst);
      visit(r, f);
    } while (steps_.load(std::memory_order_seq_cst) != before);
  }

  std::size_t size() const { return size_.load(std::memory_order_relaxed); }

  // ---- writers, under the domain's slow lock ----

  /// Allocates ahead for one insert().
  bool reserve() {
    if (!blocks_.reserve(2)) return false;
    Directory* directory = directory_.load(std::memory_order_relaxed);
    if (directory && directory->count.load(std::memory_order_relaxed) + 2 <= directory->capacity) return true;
    return grow_directory(directory);
  }

  void insert(R* region) {
    Directory* directory = directory_.load(std::memory_order_relaxed);
    const Address key = region->begin.load(std::memory_order_relaxed);
    const std::uint32_t blocks = directory->count.load(std::memory_order_relaxed);
    Writing writing(*this);
    std::uint32_t at = directory->last_not_above(key, std::memory_order_relaxed);
    if (at == kNone) {
      if (blocks == 0) directory->insert(0, key, blocks_.take(), writing);
      at = 0;
    }
    Block* block = directory->block(at);
    if (block->full()) {
      Block* upper = blocks_.take();
      // Memory is mostly handed out upwards: behind the last region the full block stays full.
      const bool append = at + 1 == blocks && key > block->key(kBlockEntries - 1);
      if (!append) block->copy_upper_half(upper);
      directory->insert(at + 1, append ? key : upper->key(0), upper, writing);
      if (!append) block->drop_upper_half(writing);
      if (append || key >= upper->key(0)) {
        block = upper;
        ++at;
      }
    }
    block->insert(key, region, writing);
    writing.step();
    directory->firsts()[at].store(block->key(0), std::memory_order_release);
    size_.store(size() + 1, std::memory_order_relaxed);
  }

  void erase(R* region) {
    Directory* directory = directory_.load(std::memory_order_relaxed);
    const Address key = region->begin.load(std::memory_order_relaxed);
    const std::uint32_t at = directory->last_not_above(key, std::memory_order_relaxed);
    if (at == kNone) return;
    Block* block = directory->block(at);
    const std::uint32_t i = block->place_of(key);
    if (block->regions[i].load(std::memory_order_relaxed) != region) return;
    Writing writing(*this);
    block->erase(i, writing);
    if (block->count.load(std::memory_order_relaxed) == 0) {
      directory->erase(at, writing);
      blocks_.put(block);
    } else {
      writing.step();
      directory->firsts()[at].store(block->key(0), std::memory_order_release);
    }
    size_.store(size() - 1, std::memory_order_relaxed);
  }

  /// Memory of its blocks.
  std::size_t bytes() const { return blocks_.bytes(); }

  /// All regions in order; under the domain's slow lock. Stops when f returns false.
  template <class F>
  void for_each(F&& f) const {
    const Directory* directory = directory_.load(std::memory_order_relaxed);
    if (!directory) return;
    for (std::uint32_t at = 0; at < directory->count.load(std::memory_order_relaxed); ++at) {
      const Block* block = directory->block(at);
      for (std::uint32_t i = 0; i < block->count.load(std::memory_order_relaxed); ++i)
        if (!f(block->regions[i].load(std::memory_order_relaxed))) return;
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~0u;

  /// The steps of one change.
  class Writing {
   public:
    explicit Writing(BasicRegionIndex& index) : steps_(index.steps_) {}
    /// The stores up to the next call are one step.
    void step() { steps_.store(steps_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    /// In one order with the brackets of hooks: see brackets.h.
    ~Writing() { steps_.fetch_add(1, std::memory_order_seq_cst); }

   private:
    Atomic<std::uint64_t>& steps_;
  };

  struct alignas(64) Block {
    static constexpr Address kUnused = ~Address{0};  // above every address: searches end before it

    Atomic<Address> keys[kBlockEntries];
    Atomic<R*> regions[kBlockEntries]{};
    Atomic<std::uint32_t> count{0};
    Block* next_free = nullptr;

    Block() {
      for (auto& key : keys) key.store(kUnused, std::memory_order_relaxed);
    }
    bool full() const { return count.load(std::memory_order_relaxed) == kBlockEntries; }
    Address key(std::uint32_t i) const { return keys[i].load(std::memory_order_relaxed); }

    std::uint32_t last_not_above(Address a) const {
      // Counting reads all keys at once, where a binary search would wait for one after the other.
      std::uint32_t not_above = 0;
      for (const auto& key : keys) not_above += key.load(std::memory_order_relaxed) <= a;
      return not_above - 1;
    }
    /// Returns the place of a key that is there; for writers, who need not wait for these lines.
    std::uint32_t place_of(Address a) const {
      static_assert(std::has_single_bit(kBlockEntries));
      std::uint32_t i = 0;
      for (std::uint32_t half = kBlockEntries / 2; half > 0; half /= 2) i += key(i + half) <= a ? half : 0;
      return i;
    }
    void set(std::uint32_t i, Address key, R* region) {
      keys[i].store(key, std::memory_order_release);
      regions[i].store(region, std::memory_order_release);
    }
    void move(std::uint32_t from, Block* to, std::uint32_t i) const {
      to->set(i, key(from), regions[from].load(std::memory_order_relaxed));
    }
    void insert(Address key_of_region, R* region, Writing& writing) {
      const std::uint32_t n = count.load(std::memory_order_relaxed);
      std::uint32_t i = n;
      for (; i > 0 && key(i - 1) > key_of_region; --i) {
        writing.step();
        move(i - 1, this, i);
        if (i == n) grow(writing);
      }
      writing.step();
      set(i, key_of_region, region);
      if (i == n) grow(writing);
    }
    void grow(Writing& writing) {
      writing.step();
      count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    void erase(std::uint32_t i, Writing& writing) {
      const std::uint32_t last = count.load(std::memory_order_relaxed) - 1;
      for (; i < last; ++i) {
        writing.step();
        move(i + 1, this, i);
      }
      shrink(last, writing);
    }
    void shrink(std::uint32_t to, Writing& writing) {
      const std::uint32_t from = count.load(std::memory_order_relaxed);
      writing.step();
      count.store(to, std::memory_order_release);
      writing.step();
      for (std::uint32_t i = to; i < from; ++i) keys[i].store(kUnused, std::memory_order_release);
    }
    /// Fills a block that readers cannot find yet.
    void copy_upper_half(Block* upper) const {
      for (std::uint32_t i = kHalf; i < kBlockEntries; ++i) move(i, upper, i - kHalf);
      upper->count.store(kBlockEntries - kHalf, std::memory_order_release);
    }
    void drop_upper_half(Writing& writing) { shrink(kHalf, writing); }

    static constexpr std::uint32_t kHalf = kBlockEntries / 2;
  };

  /// The first key of every block, then the blocks: two arrays of `capacity` behind the header.
  struct Directory {
    const std::uint32_t capacity;
    Atomic<std::uint32_t> count{0};

    static std::size_t bytes(std::uint32_t capacity) {
      return sizeof(Directory) + capacity * (sizeof(Atomic<Address>) + sizeof(Atomic<Block*>));
    }
    explicit Directory(std::uint32_t entries) : capacity(entries) {
      for (std::uint32_t i = 0; i < capacity; ++i) {
        new (firsts() + i) Atomic<Address>(0);
        new (blocks() + i) Atomic<Block*>(nullptr);
      }
    }
    Atomic<Address>* firsts() { return reinterpret_cast<Atomic<Address>*>(this + 1); }
    Atomic<Block*>* blocks() { return reinterpret_cast<Atomic<Block*>*>(firsts() + capacity); }
    const Atomic<Address>* firsts() const { return const_cast<Directory*>(this)->firsts(); }
    const Atomic<Block*>* blocks() const { return const_cast<Directory*>(this)->blocks(); }
    Block* block(std::uint32_t at) const { return blocks()[at].load(std::memory_order_relaxed); }

    std::uint32_t last_not_above(Address a, std::memory_order order) const {
      const Atomic<Address>* low = firsts();
      std::uint32_t n = count.load(std::memory_order_acquire);
      if (n == 0 || low->load(order) > a) return kNone;
      while (n > 1) {
        const std::uint32_t half = n / 2;
        low = low[half].load(order) <= a ? low + half : low;
        n -= half;
      }
      return static_cast<std::uint32_t>(low - firsts());
    }
    void set(std::uint32_t at, Address first, Block* block) {
      firsts()[at].store(first, std::memory_order_release);
      blocks()[at].store(block, std::memory_order_release);
    }
    void insert(std::uint32_t at, Address first, Block* block, Writing& writing) {
      const std::uint32_t n = count.load(std::memory_order_relaxed);
      for (std::uint32_t i = n; i > at; --i) {
        writing.step();
        copy(*this, i - 1, i);
        if (i == n) resize(n + 1, writing);
      }
      writing.step();
      set(at, first, block);
      if (at == n) resize(n + 1, writing);
    }
    void erase(std::uint32_t at, Writing& writing) {
      const std::uint32_t n = count.load(std::memory_order_relaxed) - 1;
      for (std::uint32_t i = at; i < n; ++i) {
        writing.step();
        copy(*this, i + 1, i);
      }
      resize(n, writing);
    }
    void resize(std::uint32_t entries, Writing& writing) {
      writing.step();
      count.store(entries, std::memory_order_release);
    }
    void copy(const Directory& from, std::uint32_t i, std::uint32_t to) {
      set(to, from.firsts()[i].load(std::memory_order_relaxed), from.block(i));
    }
  };

  bool grow_directory(Directory* old) {
    const std::uint32_t capacity = old ? old->capacity * 2 : 256;
    void* memory = ::mmap(nullptr, Directory::bytes(capacity), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    auto* directory = new (memory) Directory(capacity);
    const std::uint32_t n = old ? old->count.load(std::memory_order_relaxed) : 0;
    for (std::uint32_t i = 0; i < n; ++i) directory->copy(*old, i, i);
    directory->count.store(n, std::memory_order_release);
    Writing writing(*this);
    writing.step();
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
    std::uint32_t at = directory->last_not_above(r.begin, std::memory_order_acquire);
    if (at == kNone) at = 0;
    // While a writer is halfway, a block may hold less, or begin higher, than its key in the directory: only
    // a region that ends too early proves that those before it do.
    bool reaches = true;
    for (std::uint32_t back = at; reaches && back != kNone; --back) {
      const Block* block = directory->blocks()[back].load(std::memory_order_acquire);
      for (std::uint32_t i = block->count.load(std::memory_order_acquire); reaches && i-- > 0;) {
        if (block->keys[i].load(std::memory_order_acquire) >= r.end) continue;
        reaches = report(block->regions[i].load(std::memory_order_acquire), r, f);
      }
    }
    for (++at; at < blocks; ++at) {
      const Block* block = directory->blocks()[at].load(std::memory_order_acquire);
      const std::uint32_t n = block->count.load(std::memory_order_acquire);
      for (std::uint32_t i = 0; i < n; ++i) {
        if (block->keys[i].load(std::memory_order_acquire) >= r.end) return;
        report(block->regions[i].load(std::memory_order_acquire), r, f);
      }
    }
  }

  /// False where the region ends before r.
  template <class F>
  static bool report(R* region, Range r, F& f) {
    if (region->end.load(std::memory_order_acquire) <= r.begin) return false;
    // A key and a region may be those of neighbours for a moment.
    if (region->begin.load(std::memory_order_acquire) < r.end) f(region);
    return true;
  }

  Atomic<std::uint64_t> steps_{0};  ///< of all writers, ever
  Atomic<Directory*> directory_{nullptr};
  Atomic<std::size_t> size_{0};
  Slab<Block> blocks_;
};

}  // namespace pinion
