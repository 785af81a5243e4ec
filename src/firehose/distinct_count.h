// Counts different values of 64 bits: exactly up to `kMost`, beyond that by the sample of those whose hash
// ends in zeros. A value without memory for it goes uncounted. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <unordered_set>

namespace pinion::firehose {

class DistinctCount {
 public:
  void add(std::uint64_t value) {
    const std::uint64_t hash = mixed(value);
    if ((hash & mask_) != 0) return;
    try {
      sample_.insert(hash);
    } catch (const std::bad_alloc&) {
      return;
    }
    while (sample_.size() > kMost) {
      mask_ = 2 * mask_ + 1;
      std::erase_if(sample_, [this](std::uint64_t kept) { return (kept & mask_) != 0; });
    }
  }
  std::uint64_t count() const { return sample_.size() * (mask_ + 1); }

  static constexpr std::size_t kMost = std::size_t{1} << 20;

 private:
  /// One to one. (splitmix64's finaliser.)
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  std::uint64_t mask_ = 0;
  std::unordered_set<std::uint64_t> sample_;
};

}  // namespace pinion::firehose
