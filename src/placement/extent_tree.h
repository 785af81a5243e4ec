// Free extents in order of their areas' age, and then of address: the first that is large enough, in O(log
// n). The kernel hands out addresses downwards: by address alone a new area would be filled before the holes
// of older ones.
//
// STRUCTURE A treap: a search tree by that order, and a heap by priorities, which a hash of the address
// makes. Each node knows the longest extent of its subtree.
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
  std::uint32_t most = 0;  ///< of the subtree
  Area* area = nullptr;
  Extent *left = nullptr, *right = nullptr;
  Extent *newer = nullptr,
         *older = nullptr;        ///< of the unmerged ones (chunk_heap.h); `older` also of the spare ones
  std::uint32_t area_number = 0;  ///< of a free one: areas are counted as they come
  State state = State::used;
  bool unmerged = false;
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
  /// Gives it other bounds. Its place in the order stays.
  void resize(Extent& extent, Address begin, std::uint32_t chunks) {
    const Key before = key_of(extent);
    extent.begin = begin;
    extent.chunks = chunks;
    refresh_to(root_, extent, before);
  }

  Extent* first_fit(std::uint32_t chunks) const {
    Extent* at = root_;
    while (at != nullptr && at->most >= chunks) {
      if (at->left != nullptr && at->left->most >= chunks) {
        at = at->left;
      } else if (at->chunks >= chunks) {
        return at;
      } else {
        at = at->right;
      }
    }
    return nullptr;
  }

  /// The first extent that passes `fits(extent)` too, of as many as `looks` that are large enough; null: none
  /// does.
  template <class Fits>
  Extent* first_fit(std::uint32_t chunks, unsigned looks, Fits&& fits) const {
    return first_fit(root_, chunks, looks, fits);
  }

  /// Calls visit(extent) for those of at least so many chunks, last one first, until it returns false. The
  /// visit leaves the tree alone. Smaller ones cost no time, but for the way to the larger.
  template <class Visit>
  void from_the_end(std::uint32_t chunks, Visit&& visit) const {
    from_the_end(root_, chunks, visit);
  }

 private:
  struct Key {
    std::uint32_t area_number;
    Address begin;
    bool operator<(const Key& other) const {
      return area_number != other.area_number ? area_number < other.area_number : begin < other.begin;
    }
  };
  static Key key_of(const Extent& extent) { return {extent.area_number, extent.begin}; }

  template <class Fits>
  static Extent* first_fit(Extent* at, std::uint32_t chunks, unsigned& looks, Fits& fits) {
    if (at == nullptr || at->most < chunks || looks == 0) return nullptr;
    if (Extent* const lower = first_fit(at->left, chunks, looks, fits)) return lower;
    if (at->chunks >= chunks) {
      if (looks == 0) return nullptr;
      --looks;
      if (fits(*at)) return at;
    }
    return first_fit(at->right, chunks, looks, fits);
  }

  static std::uint32_t priority(const Extent& extent) {
    // The node's own address: the bounds change.
    return static_cast<std::uint32_t>((reinterpret_cast<Address>(&extent) * 0x9e3779b97f4a7c15u) >> 32);
  }
  static void refresh(Extent& at) {
    at.most = at.chunks;
    if (at.left != nullptr) at.most = std::max(at.most, at.left->most);
    if (at.right != nullptr) at.most = std::max(at.most, at.right->most);
  }

  static void split(Extent* from, Key key, Extent*& below, Extent*& above) {
    if (from == nullptr) {
      below = above = nullptr;
    } else if (key_of(*from) < key) {
      below = from;
      split(from->right, key, from->right, above);
      refresh(*from);
    } else {
      above = from;
      split(from->left, key, below, from->left);
      refresh(*from);
    }
  }
  static Extent* join(Extent* below, Extent* above) {
    if (below == nullptr) return above;
    if (above == nullptr) return below;
    Extent* const top = priority(*below) > priority(*above) ? below : above;
    if (top == below) {
      below->right = join(below->right, above);
    } else {
      above->left = join(below, above->left);
    }
    refresh(*top);
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
    refresh(*at);
  }
  static void erase(Extent*& at, Extent& extent) {
    if (at == &extent) {
      at = join(extent.left, extent.right);
      return;
    }
    erase(key_of(extent) < key_of(*at) ? at->left : at->right, extent);
    refresh(*at);
  }
  static void refresh_to(Extent* at, const Extent& extent, Key key) {
    if (at != &extent) refresh_to(key < key_of(*at) ? at->left : at->right, extent, key);
    refresh(*at);
  }

  template <class Visit>
  static bool from_the_end(Extent* at, std::uint32_t chunks, Visit& visit) {
    if (at == nullptr || at->most < chunks) return true;
    return from_the_end(at->right, chunks, visit) && (at->chunks < chunks || visit(*at)) &&
           from_the_end(at->left, chunks, visit);
  }

  Extent* root_ = nullptr;
};

}  // namespace pinion
