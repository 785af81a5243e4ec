// A model of the contents of memory while a random program changes it: places, each with the last contents of
// every page of its own, and the changes of its kind of memory. The holder of a place's mutex may do anything
// with it; nothing else is guarded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <random>
#include <vector>

#include "transfer_engine.h"

namespace pinion::test {

inline void* pointer(Address a) { return reinterpret_cast<void*>(a); }

/// A thread's dice.
class Chance {
 public:
  explicit Chance(unsigned seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return random_() % n; }
  bool one_in(std::size_t n) { return below(n) == 0; }
  /// A stamp that was never given before.
  std::uint64_t stamp() {
    return static_cast<std::uint64_t>(random_()) << 32 | (++stamps_ << 1 & 0xffffffff);
  }

 private:
  std::minstd_rand random_;
  std::uint64_t stamps_ = 0;
};

/// For calls that must succeed in any program.
inline void must(bool done) {
  if (!done) std::abort();
}

struct Page {
  static constexpr std::uint64_t kZero = 0;      ///< unwritten since it was mapped
  static constexpr std::uint64_t kAnything = 1;  ///< its contents are open until it is written
  std::uint64_t mapping = 0;                     ///< pages of one mapping have the same; 0: not mapped
  std::uint64_t stamp = kZero;
  std::uint64_t epoch = 0;  ///< of the page behind it: a page pinned under an older one is another page
};

class Place {
 public:
  static constexpr std::size_t kSamples = 2;  ///< words of a page that are written and compared

  virtual ~Place() = default;
  /// Something happens to the memory. How many events that was.
  virtual std::size_t change(Chance& chance) = 0;
  virtual const char* kind() const = 0;
  /// Whether a forked child has the memory to itself.
  virtual bool is_copied_at_fork() const { return true; }

  std::mutex mutex;
  Address begin = 0;
  std::vector<Page> pages;

  Address address(std::size_t page) const { return begin + page * page_size(); }
  Range range(std::size_t from, std::size_t to) const { return {address(from), address(to)}; }
  /// The end of the pages from `from` on, up to `to`, that are mapped.
  std::size_t mapped_until(std::size_t from, std::size_t to) const {
    while (from < to && pages[from].mapping) ++from;
    return from;
  }
  /// ... that are of one mapping.
  std::size_t same_mapping_until(std::size_t from, std::size_t to) const {
    std::size_t end = from;
    while (end < to && pages[end].mapping == pages[from].mapping) ++end;
    return end;
  }

  // ---- contents ----

  /// Chooses new contents for [from, to), and writes them at `bytes`.
  void stamp_at(std::byte* bytes, std::size_t from, std::size_t to, Chance& chance) {
    const std::uint64_t stamp = chance.stamp();
    for (std::size_t i = from; i < to; ++i) pages[i].stamp = stamp;
    for_each_sample(from, to, [&](std::size_t, std::size_t offset, Address a) {
      *reinterpret_cast<volatile std::uint64_t*>(bytes + offset) = word_of(a, stamp);
    });
  }
  void write(std::size_t from, std::size_t to, Chance& chance) {
    stamp_at(reinterpret_cast<std::byte*>(address(from)), from, to, chance);
  }
  /// Writes the pages with open contents.
  void settle(std::size_t from, std::size_t to, Chance& chance) {
    for (std::size_t i = from; i < to; ++i) {
      if (pages[i].stamp == Page::kAnything) write(i, i + 1, chance);
    }
  }
  /// The first page of [from, to) with wrong contents at `bytes`; `to` when all are right.
  /// Async-signal-safe.
  std::size_t first_wrong(const std::byte* bytes, std::size_t from, std::size_t to) const {
    std::size_t wrong = to;
    for_each_sample(from, to, [&](std::size_t page, std::size_t offset, Address a) {
      const std::uint64_t stamp = pages[page].stamp;
      if (stamp == Page::kAnything) return;
      const auto found = *reinterpret_cast<const volatile std::uint64_t*>(bytes + offset);
      if (found != (stamp == Page::kZero ? 0 : word_of(a, stamp))) wrong = std::min(wrong, page);
    });
    return wrong;
  }
  std::size_t first_wrong(std::size_t from, std::size_t to) const {
    return first_wrong(reinterpret_cast<const std::byte*>(address(from)), from, to);
  }

 protected:
  /// [from, to) is a mapping of its own now, of zeroes by default.
  void mapped(std::size_t from, std::size_t to, std::uint64_t stamp = Page::kZero) {
    ++epochs_;
    for (std::size_t i = from; i < to; ++i) pages[i] = {epochs_, stamp, epochs_};
  }
  void unmapped(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) pages[i] = {};
  }
  /// Other pages are behind the mapping, or may be.
  void emptied(std::size_t from, std::size_t to, std::uint64_t stamp = Page::kZero) {
    ++epochs_;
    for (std::size_t i = from; i < to; ++i) pages[i] = {pages[i].mapping, stamp, epochs_};
  }

 private:
  template <class F>
  void for_each_sample(std::size_t from, std::size_t to, F&& f) const {
    for (std::size_t page = from; page < to; ++page) {
      for (std::size_t s = 0; s < kSamples; ++s) {
        const std::size_t offset = s * (page_size() / kSamples);
        f(page, (page - from) * page_size() + offset, address(page) + offset);
      }
    }
  }

  std::uint64_t epochs_ = 0;
};

}  // namespace pinion::test
