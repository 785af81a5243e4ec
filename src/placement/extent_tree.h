// Free extents in order of their sizes, and then of their areas' age and of address: the smallest that is
// large enough, in O(log n). So large ones stay for large blocks. The kernel hands out addresses downwards:
// by address alone a new area would be filled before the holes of older ones.
//
// STRUCTURE A treap: a search tree by that order, and a heap by priorities, which a hash of the record's
// address makes.
//
// The links lie in the extents, which their owner keeps. Guarded by the owner's lock; never allocates.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/range.h"

namespace pinion {

constexpr std::size_t kChunk = 4096;

struct Area;

/// Neighbouring chunks of one area: a block, or free.
struct Extent {
  enum class State : std::uint8_t {
    used,
    free,
    returning,  ///< free, out of the tree: its pages are going back to the kernel
  };

  Address begin = 0;
  std::uint32_t chunks = 0;
  Area* area = nullptr;
  Extent *left = nullptr, *right = nullptr;
  Extent* older = nullptr;        ///< of the spare ones
  std::uint32_t area_number = 0;  ///< of a free one: areas are counted as they come
  State state = State::used;
  bool mapped = false;  ///< a block that the program has by mmap
  bool aside = false;   ///< mapped: the program's mapping over free memory

  std::size_t bytes() const { return std::size_t{chunks} * kChunk; }
  Address end() const { return begin + bytes(); }
  Range range() const { return {begin, end()}; }
};

class ExtentTree {
 public:
  void insert(Extent& extent) {
    extent.left = extent.right = nullptr;
    insert(root_, extent);
  }
  void erase(Extent& extent) { erase(root_, extent); }

  /// The first extent that passes `fits(extent)`, of as many as `looks` that have so many chunks; null: none
  /// does.
  template <class Fits>
  Extent* best_fit(std::uint32_t chunks, unsigned looks, Fits&& fits) const {
    Extent* found = nullptr;
    upwards(root_, chunks, [&](Extent& extent) {
      if (fits(extent)) found = &extent;
      return found == nullptr && --looks != 0;
    });
    return found;
  }
  Extent* best_fit(std::uint32_t chunks) const {
    return best_fit(chunks, 1, [](const Extent&) { return true; });
  }

  /// Calls visit(extent) for those of at least so many chunks, largest first, until it returns false. The
  /// visit leaves the tree alone. Smaller ones cost no time, but for the way to the larger.
  template <class Visit>
  void downwards(std::uint32_t chunks, Visit&& visit) const {
    downwards(root_, chunks, visit);
  }

 private:
  struct Key {
    std::uint32_t chunks, area_number;
    Address begin;
    auto operator<=>(const Key&) const = default;
  };
  static Key key_of(const Extent& extent) { return {extent.chunks, extent.area_number, extent.begin}; }

  static std::uint32_t priority(const Extent& extent) {
    // The node's own address: the bounds change.
    return static_cast<std::uint32_t>((reinterpret_cast<Address>(&extent) * 0x9e3779b97f4a7c15u) >> 32);
  }

  static void split(Extent* from, Key key, Extent*& below, Extent*& above) {
    if (from == nullptr) {
      below = above = nullptr;
    } else if (key_of(*from) < key) {
      below = from;
      split(from->right, key, from->right, above);
    } else {
      above = from;
      split(from->left, key, below, from->left);
    }
  }
  static Extent* join(Extent* below, Extent* above) {
    if (below == nullptr) return above;
    if (above == nullptr) return below;
    Extent* const top = priority(*below) > priority(*above) ? below : above;
    if (top == below)
      below->right = join(below->right, above);
    else
      above->left = join(below, above->left);
    return top;
  }

  static void insert(Extent*& at, Extent& extent) {
    if (at == nullptr) {
      at = &extent;
    } else if (priority(extent) > priority(*at)) {
      Extent* const from = at;
      split(from, key_of(extent), extent.left, extent.right);
      at = &extent;
    } else {
      insert(key_of(extent) < key_of(*at) ? at->left : at->right, extent);
    }
  }
  static void erase(Extent*& at, Extent& extent) {
    if (at == &extent)
      at = join(extent.left, extent.right);
    else
      erase(key_of(extent) < key_of(*at) ? at->left : at->right, extent);
  }

  template <class Visit>
  static bool upwards(Extent* at, std::uint32_t chunks, Visit&& visit) {
    if (at == nullptr) return true;
    if (at->chunks < chunks) return upwards(at->right, chunks, visit);
    return upwards(at->left, chunks, visit) && visit(*at) && upwards(at->right, chunks, visit);
  }
  template <class Visit>
  static bool downwards(Extent* at, std::uint32_t chunks, Visit&& visit) {
    if (at == nullptr) return true;
    return downwards(at->right, chunks, visit) &&
           (at->chunks < chunks || (visit(*at) && downwards(at->left, chunks, visit)));
  }

  Extent* root_ = nullptr;
};

}  // namespace pinion
