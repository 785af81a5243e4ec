// A hash table of bounded size that forgets its longest unused entry: sets of four ways, grown by doubling up
// to its bound. Keys lie apart from the values, a set's in one line of the cache. So a vain look touches keys
// only, and growing moves keys only. 0 marks a free place, so keys differ from it. Pointers are good until
// the next insert(). One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinion {

template <class Value>
class ContextTable {
 public:
  explicit ContextTable(std::size_t most) : most_(most), sets_(kFirst / kWays) {}

  Value* find(std::uint64_t key) {
    Set& set = set_of(key);
    for (std::size_t way = 0; way < kWays; ++way) {
      if (set.keys[way] != key) continue;
      set.used[way] = ++clock_;
      return &values_[set.values[way]];
    }
    return nullptr;
  }

  /// The key's value, or a fresh one.
  Value& insert(std::uint64_t key) {
    Value* const known = find(key);
    return known ? *known : add(key);
  }

  template <class F>
  void for_each(F&& f) const {  ///< f(key, value)
    for (const Set& set : sets_) {
      for (std::size_t way = 0; way < kWays; ++way)
        if (set.keys[way] != 0) f(set.keys[way], values_[set.values[way]]);
    }
  }
  std::size_t size() const { return values_.size(); }

 private:
  static constexpr std::size_t kWays = 4, kFirst = 256;

  struct alignas(64) Set {
    std::array<std::uint64_t, kWays> keys{};    ///< 0: empty
    std::array<std::uint32_t, kWays> used{};    ///< when, by clock_
    std::array<std::uint32_t, kWays> values{};  ///< places of the values
  };

  Set& set_of(std::uint64_t key) { return sets_[((key * 0x9E3779B97F4A7C15ull) >> 22) & (sets_.size() - 1)]; }

  /// The search is out of line, as most keys are known.
  [[gnu::noinline]] Value& add(std::uint64_t key) {
    if (values_.size() * 2 >= sets_.size() * kWays && sets_.size() * kWays < most_) grow();
    Set& set = set_of(key);
    const std::size_t way = place_in(set);
    if (set.keys[way] == 0) {
      set.values[way] = static_cast<std::uint32_t>(values_.size());
      values_.emplace_back();
    } else {
      values_[set.values[way]] = {};
    }
    set.keys[way] = key;
    set.used[way] = ++clock_;
    return values_[set.values[way]];
  }

  /// Returns the way for a further key: an empty one, or the longest unused.
  static std::size_t place_in(const Set& set) {
    std::size_t oldest = 0;
    for (std::size_t way = 1; way < kWays; ++way) {
      if (set.keys[oldest] == 0) break;
      if (set.keys[way] == 0 || set.used[way] < set.used[oldest]) oldest = way;
    }
    return oldest;
  }

  /// Each set becomes two, so all keys find a place.
  void grow() {
    std::vector<Set> before(sets_.size() * 2);
    before.swap(sets_);
    for (const Set& old : before) {
      for (std::size_t way = 0; way < kWays; ++way) {
        if (old.keys[way] == 0) continue;
        Set& set = set_of(old.keys[way]);
        const std::size_t to = place_in(set);
        set.keys[to] = old.keys[way];
        set.used[to] = old.used[way];
        set.values[to] = old.values[way];
      }
    }
  }

  const std::size_t most_;
  std::vector<Set> sets_;
  std::vector<Value> values_;
  std::uint32_t clock_ = 0;  ///< wraps after four thousand million looks; then a few wrong victims
};

}  // namespace pinion
