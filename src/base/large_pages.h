// Memory whose pages are larger than the system's: hugetlb mappings, where one byte pinned pins a hugepage.
// LargePages is a list of such memory. Its owner guards it. It allocates, so it is for ordinary code, outside
// of hooks and spin locks. The rest is pure values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "base/range.h"

namespace pinion {

/// Neighbouring memory with pages of one size.
struct PagedMemory {
  Range range{};
  std::size_t page_bytes = 0;
};

/// A request in whole pages of its memory; empty where those are of the system's size.
struct LargeRange {
  Range range{};
  std::size_t page_bytes = 0;  ///< the larger size, where its ends lie in pages of two sizes

  bool empty() const { return range.empty(); }
};

/// The range in memory that has pages of `page_bytes`, a power of two.
inline LargeRange in_large_pages(Range request, std::size_t page_bytes) {
  const Address last = (request.end - 1) | (Address{page_bytes} - 1);
  return {{request.begin & ~(Address{page_bytes} - 1), last + 1}, page_bytes};
}

/// `find(Address, PagedMemory&)` returns whether there is memory, and which. Each end of the request is
/// rounded by the pages that it lies in, and never beyond their memory.
template <class Find>
LargeRange large_pages_around(Range request, Find&& find) {
  LargeRange all{request.to_pages(), 0};
  PagedMemory memory;
  if (!find(request.begin, memory)) return {};
  if (memory.page_bytes > page_size()) {
    all.page_bytes = memory.page_bytes;
    all.range.begin = std::max(memory.range.begin, in_large_pages(request, memory.page_bytes).range.begin);
  }
  if (memory.range.end < request.end && !find(request.end - 1, memory)) return {};
  if (memory.page_bytes > page_size()) {
    all.page_bytes = std::max(all.page_bytes, memory.page_bytes);
    all.range.end = std::min(memory.range.end, in_large_pages(request, memory.page_bytes).range.end);
  }
  return all.page_bytes == 0 ? LargeRange{} : all;
}

class LargePages {
 public:
  /// The range consists of such pages from now on.
  void add(const LargeRange& large) {
    erase(large.range);
    auto next = parts_.lower_bound(large.range.begin);
    Range range = large.range;
    if (next != parts_.end() && next->first == range.end && next->second.page_bytes == large.page_bytes) {
      range.end = next->second.end;
      next = parts_.erase(next);
    }
    if (next != parts_.begin()) {
      Part& before = std::prev(next)->second;
      if (before.end == range.begin && before.page_bytes == large.page_bytes) {
        before.end = range.end;
        return;
      }
    }
    parts_.emplace_hint(next, range.begin, Part{range.end, large.page_bytes});
  }
  /// Its memory is gone.
  void erase(Range range) {
    if (range.empty()) return;
    cut(range.begin);
    cut(range.end);
    parts_.erase(parts_.lower_bound(range.begin), parts_.lower_bound(range.end));
  }
  bool empty() const { return parts_.empty(); }
  /// Empty where the list has no memory of the request's.
  LargeRange around(Range request) const {
    if (parts_.empty()) return {};
    return large_pages_around(request, [this](Address at, PagedMemory& memory) {
      memory = {{at, ~Address{0}}, page_size()};
      const auto next = parts_.upper_bound(at);
      if (next != parts_.end()) memory.range.end = next->first;
      if (next == parts_.begin()) return true;
      const auto& [begin, part] = *std::prev(next);
      if (at < part.end) memory = {{begin, part.end}, part.page_bytes};
      return true;
    });
  }

 private:
  struct Part {
    Address end;
    std::size_t page_bytes;
  };
  /// No part reaches across `at`.
  void cut(Address at) {
    const auto next = parts_.lower_bound(at);
    if (next == parts_.begin()) return;
    Part& before = std::prev(next)->second;
    if (before.end <= at) return;
    parts_.emplace_hint(next, at, before);
    before.end = at;
  }

  std::map<Address, Part> parts_;  ///< by their begin; disjoint
};

}  // namespace pinion
