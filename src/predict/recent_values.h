// The latest values of something, in order of size. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace pinion {

template <std::size_t most>
class RecentValues {
  static_assert(std::has_single_bit(most));

 public:
  void add(float value) {
    const std::size_t n = size();
    std::size_t at = n;
    if (count_ >= most) {
      // The oldest makes room; only values between it and the new one move.
      at = place_of(recent_[count_ % most]);
      if constexpr (most > kBlock)
        for (; at + kBlock < n && sorted_[at + kBlock] < value; at += kBlock) move_block(at + 1, at);
      for (; at + 1 < n && sorted_[at + 1] < value; ++at) sorted_[at] = sorted_[at + 1];
    }
    if constexpr (most > kBlock)
      for (; at >= kBlock && value < sorted_[at - kBlock]; at -= kBlock)
        move_block(at - kBlock, at - kBlock + 1);
    for (; at > 0 && value < sorted_[at - 1]; --at) sorted_[at] = sorted_[at - 1];
    sorted_[at] = value;
    recent_[count_ % most] = value;
    if (++count_ == 4 * most) count_ = 2 * most;  // beyond `most` only the position counts
  }
  std::size_t size() const { return std::min<std::size_t>(count_, most); }
  std::span<const float> sorted() const { return {sorted_.data(), size()}; }

 private:
  static constexpr std::size_t kBlock = 8;  ///< values moved at once
  void move_block(std::size_t from, std::size_t to) {
    std::memmove(&sorted_[to], &sorted_[from], kBlock * sizeof(float));
  }

  /// Returns the place of a value that is there, with all places taken. Branch-free, as a processor would
  /// mispredict branches.
  std::size_t place_of(float value) const {
    std::size_t at = 0;
    for (std::size_t half = most / 2; half > 0; half /= 2) at += half * (sorted_[at + half - 1] < value);
    return at;
  }

  std::array<float, most> recent_{}, sorted_{};
  std::uint32_t count_ = 0;
};

/// The recent values where values come far more often than they are asked for: sorted on demand.
template <std::size_t most>
class LatestValues {
 public:
  void add(float value) {
    recent_[next_++ % most] = value;
    n_ = std::max<std::size_t>(n_, next_);
    next_ %= most;
    in_order_ = false;
  }
  bool empty() const { return n_ == 0; }
  std::span<const float> sorted() const {
    if (!in_order_) {
      sorted_ = recent_;
      std::sort(sorted_.begin(), sorted_.begin() + static_cast<std::ptrdiff_t>(n_));
      in_order_ = true;
    }
    return {sorted_.data(), n_};
  }

 private:
  std::array<float, most> recent_{};
  std::size_t n_ = 0, next_ = 0;
  mutable std::array<float, most> sorted_{};
  mutable bool in_order_ = true;
};

}  // namespace pinion
