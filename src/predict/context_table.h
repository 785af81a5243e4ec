// A hash table of bounded size that forgets its longest unused entry: sets of four ways, grown by doubling up
// to its bound. Keys lie apart from the values, a set's in one line of the cache, so that a vain look touches
// keys only. A key is not 0. Pointers are good until the next insert(). One thread.
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
  explicit ContextTable(std::size_t most) : most_(most), sets_(kFirst / kWays), values_(kFirst) {}

  Value* find(std::uint64_t key) {
    const std::size_t number = set_of(key);
    Set& set = sets_[number];
    for (std::size_t way = 0; way < kWays; ++way) {
      if (set.keys[way] != key) continue;
      set.used[way] = ++clock_;
      return &values_[number * kWays + way];
    }
    return nullptr;
  }

  /// The key's value, or a fresh one.
  Value& insert(std::uint64_t key) {
    if (Value* known = find(key)) return *known;
    if (filled_ * 2 >= values_.size() && values_.size() < most_) grow();
    return place(key, ++clock_);
  }

  template <class F>
  void for_each(F&& f) const {  ///< f(key, value)
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::uint64_t key = sets_[i / kWays].keys[i % kWays];
      if (key != 0) f(key, values_[i]);
    }
  }
  std::size_t size() const { return filled_; }

 private:
  static constexpr std::size_t kWays = 4, kFirst = 256;

  struct alignas(64) Set {
    std::array<std::uint64_t, kWays> keys{};  ///< 0: empty
    std::array<std::uint32_t, kWays> used{};  ///< when, by clock_
  };

  std::size_t set_of(std::uint64_t key) const {
    return ((key * 0x9E3779B97F4A7C15ull) >> 22) & (sets_.size() - 1);
  }

  Value& place(std::uint64_t key, std::uint32_t used) {
    const std::size_t number = set_of(key);
    Set& set = sets_[number];
    std::size_t oldest = 0;
    for (std::size_t way = 1; way < kWays; ++way) {
      if (set.keys[oldest] == 0) break;
      if (set.keys[way] == 0 || set.used[way] < set.used[oldest]) oldest = way;
    }
    filled_ += set.keys[oldest] == 0;
    set.keys[oldest] = key;
    set.used[oldest] = used;
    Value& value = values_[number * kWays + oldest];
    value = {};
    return value;
  }

  void grow() {
    std::vector<Set> sets(sets_.size() * 2);
    std::vector<Value> values(values_.size() * 2);
    sets.swap(sets_);
    values.swap(values_);
    filled_ = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Set& set = sets[i / kWays];
      const std::uint64_t key = set.keys[i % kWays];
      if (key != 0) place(key, set.used[i % kWays]) = std::move(values[i]);
    }
  }

  const std::size_t most_;
  std::vector<Set> sets_;
  std::vector<Value> values_;  ///< of each set in turn
  std::size_t filled_ = 0;
  std::uint32_t clock_ = 0;  ///< wraps after four thousand million looks; then a few wrong victims
};

}  // namespace pinion
