// Where the index found the regions of requests last: one table for all threads of a domain. It serves a
// domain with more regions than a thread's own hints hold (recent_regions.h). A lookup among many reads one
// line of it, where one in the index waits for a line of the directory after the other, for keys and for a
// pointer.
//
// A hint may be wrong at any time: its region is gone, serves other memory, or less. Its reader tries to
// lease the region and asks the index next. So entries are single words that any thread writes in any order,
// and writers of the index leave them alone. A table that has grown begins empty.
//
// find() and remember(): any thread, outside of hooks, without a lock. The rest: under the domain's slow
// lock.
#pragma once

#include <sys/syscall.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <new>

#include "base/atomics.h"
#include "base/range.h"
#include "monitor/system_call.h"
#include "registry/kept_memory.h"

namespace pinion {

template <class R, class Atomics = StdAtomics, std::size_t Fewest = 1024>
class BasicSharedHints {
  template <class T>
  using Atomic = typename Atomics::template Atomic<T>;

 public:
  BasicSharedHints() = default;
  BasicSharedHints(const BasicSharedHints&) = delete;
  BasicSharedHints& operator=(const BasicSharedHints&) = delete;

  /// A region for a request that begins at `begin`, maybe; or null.
  R* find(Address begin) const {
    const std::uint64_t table = table_.load(std::memory_order_acquire);
    if (table == 0) return nullptr;
    const std::uint64_t key = mixed(begin);
    const Bucket& bucket = bucket_of(table, key);
    // Free of branches: any of the entries is as likely as the others.
    std::uint64_t found = 0;
    for (const Entry& entry : bucket.entries) {
      const std::uint64_t hint = entry.load(std::memory_order_acquire);
      found = ((hint ^ key) & kTag) == 0 ? hint : found;
    }
    return reinterpret_cast<R*>((found & ~kTag) >> kPointerShift);
  }

  /// A request that begins at `begin` was served by `region`.
  void remember(Address begin, R* region) {
    const std::uint64_t table = table_.load(std::memory_order_acquire);
    if (table == 0) return;
    const std::uint64_t key = mixed(begin);
    Bucket& bucket = bucket_of(table, key);
    // In a full bucket an address has one place, so that few of them are in each other's way.
    Entry* place = &bucket.entries[key / 2 % kWays];
    for (Entry& entry : bucket.entries) {
      const std::uint64_t hint = entry.load(std::memory_order_relaxed);
      if (hint == 0) place = &entry;
      if (((hint ^ key) & kTag) != 0) continue;
      place = &entry;
      break;
    }
    place->store(reinterpret_cast<std::uintptr_t>(region) << kPointerShift | (key & kTag),
                 std::memory_order_release);
  }

  /// Makes room for the hints of so many regions. Without memory they stay as many as they are.
  void fit(std::size_t regions) {
    if (regions < Fewest || regions <= room_) return;
    const std::size_t buckets = std::bit_ceil(regions / kMostInABucket + 2);
    std::byte* const memory = map_kept(buckets * sizeof(Bucket));
    if (!memory) return;
    const std::uint64_t old = table_.load(std::memory_order_relaxed);
    table_.store(reinterpret_cast<std::uintptr_t>(memory) | static_cast<unsigned>(std::countr_zero(buckets)),
                 std::memory_order_release);
    // Readers may be in the old table still: it stays mapped, and empty.
    if (old != 0) raw_system_call(SYS_madvise, arguments_of(old & ~kBits, bytes_, MADV_DONTNEED));
    bytes_ = buckets * sizeof(Bucket);
    room_ = buckets * kMostInABucket;
  }

  std::size_t bytes() const { return bytes_; }

 private:
  using Entry = Atomic<std::uint64_t>;
  static constexpr std::size_t kWays = 8;
  static constexpr std::size_t kMostInABucket = 6;  ///< on average, so that most buckets have room for theirs
  /// Zeroed memory is an empty one.
  struct alignas(64) Bucket {
    Entry entries[kWays];
  };

  // An entry: the pointer's bits 6 to 47, above a tag of its address. 0: empty.
  static constexpr int kPointerShift = 16;
  static constexpr std::uint64_t kTag = (std::uint64_t{1} << (kPointerShift + 6)) - 1;
  static_assert(alignof(R) >= 64);
  /// In the word of the table: the binary logarithm of its buckets; the rest is its address.
  static constexpr std::uint64_t kBits = 63;

  /// The bits of an address, spread: the upper ones choose the bucket, the lower ones are the tag (never 0).
  static std::uint64_t mixed(Address begin) {
    // Addresses at equal distances would meet in a single product's buckets.
    std::uint64_t bits = (begin ^ begin >> 32) * 0x9E3779B97F4A7C15ull;
    bits = (bits ^ bits >> 29) * 0xBF58476D1CE4E5B9ull;
    return (bits ^ bits >> 32) | 1;
  }
  static Bucket& bucket_of(std::uint64_t table, std::uint64_t key) {
    auto* const buckets = reinterpret_cast<Bucket*>(table & ~kBits);
    return buckets[key >> (64 - (table & kBits))];
  }

  Atomic<std::uint64_t> table_{0};
  std::size_t room_ = 0;  ///< regions that the table is made for
  std::size_t bytes_ = 0;
};

}  // namespace pinion
