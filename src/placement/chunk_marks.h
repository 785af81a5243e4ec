// Marks on chunks of 4 KiB: a bit for each, over one range of addresses. Its owner gives it memory of zeros
// before the first call. Lock-free: any thread, hooks too.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

#include "base/range.h"
#include "placement/extent_tree.h"

namespace pinion {

class ChunkMarks {
 public:
  static std::size_t bytes_for(Range range) { return (range.bytes() / kChunk / 64 + 1) * sizeof(Word); }
  void begin(Range range, void* zeros) {
    base_ = range.begin;
    words_ = static_cast<Word*>(zeros);
  }

  void set(Range part) {
    for_each_word(part, [](Word& word, std::uint64_t bits) { word.fetch_or(bits); });
  }
  void clear(Range part) {
    for_each_word(part, [](Word& word, std::uint64_t bits) { word.fetch_and(~bits); });
  }
  bool any(Range part) const { return find(part, true) != part.end; }

  /// The first chunk of the part that is marked, or unmarked; its end: there is none.
  Address find(Range part, bool marked) const {
    const std::size_t end = index(part.end);
    for (std::size_t i = index(part.begin); i < end; i = (i / 64 + 1) * 64) {
      const std::uint64_t word = words_[i / 64].load();
      const std::uint64_t found = (marked ? word : ~word) >> i % 64;
      if (found != 0) return std::min(part.end, base_ + (i + std::countr_zero(found)) * kChunk);
    }
    return part.end;
  }
  /// Calls visit(range) for each run of chunks that are marked, or unmarked.
  template <class Visit>
  void for_each_run(Range part, bool marked, Visit&& visit) const {
    for (Address at = find(part, marked); at < part.end;) {
      const Address end = find({at, part.end}, !marked);
      visit(Range{at, end});
      at = find({end, part.end}, marked);
    }
  }

 private:
  using Word = std::atomic<std::uint64_t>;

  std::size_t index(Address address) const { return (address - base_) / kChunk; }
  template <class Visit>
  void for_each_word(Range part, Visit&& visit) {
    const std::size_t end = index(part.end + kChunk - 1);
    for (std::size_t i = index(part.begin); i < end;) {
      const std::size_t bits = std::min<std::size_t>(64 - i % 64, end - i);
      visit(words_[i / 64], (~std::uint64_t{0} >> (64 - bits)) << i % 64);
      i += bits;
    }
  }

  Address base_ = 0;
  Word* words_ = nullptr;
};

}  // namespace pinion
