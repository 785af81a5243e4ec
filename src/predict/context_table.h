// A hash table of bounded size that forgets what was used longest ago: sets of four ways, grown by doubling
// up to its bound. `Value` has a member `key` (0: empty) and a member `used`. Pointers are good until the
// next insert(). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pinion {

template <class Value>
class ContextTable {
 public:
  explicit ContextTable(std::size_t most) : most_(most), values_(kFirst) {}

  Value* find(std::uint64_t key) {
    Value* set = &values_[first_of(key)];
    for (std::size_t way = 0; way < kWays; ++way) {
      if (set[way].key == key) {
        set[way].used = ++clock_;
        return &set[way];
      }
    }
    return nullptr;
  }

  const Value* find(std::uint64_t key) const {
    const Value* set = &values_[first_of(key)];
    for (std::size_t way = 0; way < kWays; ++way) {
      if (set[way].key == key) return &set[way];
    }
    return nullptr;
  }

  /// The key's value, or a fresh one.
  Value& insert(std::uint64_t key) {
    if (Value* known = find(key)) return *known;
    if (filled_ * 2 >= values_.size() && values_.size() < most_) grow();
    return place(key);
  }

  template <class F>
  void for_each(F&& f) const {
    for (const Value& value : values_) {
      if (value.key != 0) f(value);
    }
  }
  std::size_t size() const { return filled_; }

 private:
  static constexpr std::size_t kWays = 4, kFirst = 256;

  std::size_t first_of(std::uint64_t key) const {
    return ((key * 0x9E3779B97F4A7C15ull) >> 20) & (values_.size() - kWays);
  }

  Value& place(std::uint64_t key) {
    Value* set = &values_[first_of(key)];
    Value* oldest = set;
    for (std::size_t way = 1; way < kWays; ++way) {
      if (oldest->key == 0) break;
      if (set[way].key == 0 || set[way].used < oldest->used) oldest = &set[way];
    }
    filled_ += oldest->key == 0;
    *oldest = Value{};
    oldest->key = key;
    oldest->used = ++clock_;
    return *oldest;
  }

  void grow() {
    std::vector<Value> old(values_.size() * 2);
    old.swap(values_);
    filled_ = 0;
    for (Value& value : old) {
      if (value.key == 0) continue;
      const auto used = value.used;
      Value& placed = place(value.key);
      placed = std::move(value);
      placed.used = used;
    }
  }

  const std::size_t most_;
  std::vector<Value> values_;
  std::size_t filled_ = 0;
  std::uint32_t clock_ = 0;  ///< wraps after four thousand million looks; then a few wrong victims
};

}  // namespace pinion
