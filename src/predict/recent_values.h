// The latest values of something, in order of size. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

namespace pinion {

template <std::size_t most>
class RecentValues {
 public:
  void add(float value) {
    float* const end = sorted_.data() + size();
    if (count_ >= most) {
      // The oldest makes room.
      float* const oldest = std::lower_bound(sorted_.data(), end, recent_[count_ % most]);
      std::move(oldest + 1, end, oldest);
      insert(value, end - 1);
    } else {
      insert(value, end);
    }
    recent_[count_ % most] = value;
    if (++count_ == 4 * most) count_ = 2 * most;  // beyond `most` only the position counts
  }
  std::size_t size() const { return std::min(count_, most); }
  std::span<const float> sorted() const { return {sorted_.data(), size()}; }

 private:
  void insert(float value, float* end) {
    float* const at = std::upper_bound(sorted_.data(), end, value);
    std::move_backward(at, end, end + 1);
    *at = value;
  }

  std::array<float, most> recent_{}, sorted_{};
  std::size_t count_ = 0;
};

}  // namespace pinion
