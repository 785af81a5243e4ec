// Hash table from (peer, bucket) to objects that live elsewhere. Open addressing with linear probing; each
// operation takes O(1), reserve() amortised.
//
// Any thread may call find() at any time, without a lock: best effort, because a change may hide an entry
// from it for a moment. Its caller verifies the object, and repeats a failed search under the lock. insert()
// and erase() run under the owner's lock. Replaced tables stay until the destructor, so that readers may
// finish: they double, so they take less than the newest.
#pragma once

#include <bit>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/atomics.h"
#include "firehose/bucket.h"

namespace pinion::firehose {

/// T has atomic members `peer` and `bucket`, constant while it is in the table.
template <class T, class Atomics = StdAtomics>
class BucketTable {
  using Slot = typename Atomics::template Atomic<T*>;

 public:
  BucketTable() { grow(kFirstSlots); }
  BucketTable(const BucketTable&) = delete;
  BucketTable& operator=(const BucketTable&) = delete;

  T* find(Peer peer, Bucket bucket) const {
    return find(peer, bucket, [](T&) {});
  }
  /// Like find(), but look(T&) comes before the object's key is read. So where that has found a generation,
  /// the key is of it, or of a later one.
  template <class Look>
  T* find(Peer peer, Bucket bucket, Look&& look) const {
    const Slots& slots = *newest_.load(std::memory_order_acquire);
    for (std::uint64_t i = slots.home(peer, bucket), last = i + slots.mask; i <= last; ++i) {
      T* object = slots.at(i).load(std::memory_order_acquire);
      if (!object) break;
      look(*object);
      if (is(*object, peer, bucket)) return object;
    }
    return nullptr;
  }

  /// Room for so many more, in insert(). Throws bad_alloc, without effect.
  void reserve(std::size_t objects) {
    while (2 * (size_ + objects) > newest().mask + 1) grow(2 * (newest().mask + 1));
  }
  /// Adds an object whose key is absent. There is room for it.
  void insert(T* object) {
    put(newest(), object);
    ++size_;
  }

  void erase(T* object) {
    Slots& slots = newest();
    std::uint64_t hole = home(slots, *object);
    while (slots.at(hole).load(std::memory_order_relaxed) != object) ++hole;
    // Entries behind the hole that may lie in it move up.
    for (std::uint64_t i = hole + 1;; ++i) {
      T* next = slots.at(i).load(std::memory_order_relaxed);
      if (!next) break;
      if (((i - home(slots, *next)) & slots.mask) < ((i - hole) & slots.mask)) continue;
      slots.at(hole).store(next, std::memory_order_release);
      hole = i;
    }
    slots.at(hole).store(nullptr, std::memory_order_release);
    --size_;
  }

  std::size_t size() const { return size_; }

  /// All objects; under the lock. `f` changes nothing here.
  template <class F>
  void for_each(F&& f) const {
    const Slots& slots = *newest_.load(std::memory_order_relaxed);
    for (std::uint64_t i = 0; i <= slots.mask; ++i)
      if (T* object = slots.at(i).load(std::memory_order_relaxed)) f(*object);
  }

 private:
  static constexpr std::uint64_t kFirstSlots = 16;

  /// A power of two of them.
  struct Slots {
    explicit Slots(std::uint64_t count)
        : mask(count - 1), shift(64 - std::bit_width(mask)), all(new Slot[count]) {
      for (std::uint64_t i = 0; i < count; ++i) all[i].store(nullptr, std::memory_order_relaxed);
    }
    /// The product's upper bits depend on all of the key's; buckets in a row, or at even steps, lie apart.
    std::uint64_t home(Peer peer, Bucket bucket) const {
      return ((bucket + (static_cast<std::uint64_t>(peer) << 45)) * 0x9E3779B97F4A7C15ull) >> shift;
    }
    Slot& at(std::uint64_t i) const { return all[i & mask]; }
    const std::uint64_t mask;
    const int shift;
    const std::unique_ptr<Slot[]> all;
  };

  static bool is(const T& object, Peer peer, Bucket bucket) {
    return object.bucket.load(std::memory_order_relaxed) == bucket &&
           object.peer.load(std::memory_order_relaxed) == peer;
  }
  static std::uint64_t home(const Slots& slots, const T& object) {
    return slots.home(object.peer.load(std::memory_order_relaxed),
                      object.bucket.load(std::memory_order_relaxed));
  }
  Slots& newest() { return *tables_.back(); }

  static void put(Slots& slots, T* object) {
    std::uint64_t i = home(slots, *object);
    while (slots.at(i).load(std::memory_order_relaxed)) ++i;
    slots.at(i).store(object, std::memory_order_release);
  }

  void grow(std::uint64_t slots) {
    tables_.reserve(tables_.size() + 1);
    auto larger = std::make_unique<Slots>(slots);
    if (!tables_.empty()) for_each([&](T& object) { put(*larger, &object); });
    newest_.store(larger.get(), std::memory_order_release);
    tables_.push_back(std::move(larger));
  }

  std::vector<std::unique_ptr<Slots>> tables_;
  typename Atomics::template Atomic<Slots*> newest_{nullptr};
  std::size_t size_ = 0;
};

}  // namespace pinion::firehose
