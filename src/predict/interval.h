// The time that a repeated event takes: the mean of the last 64 or so, deaf to single outliers. Four values
// in a row that are far off show a change, and it begins anew from their median. Values in ns.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/clock.h"
#include "predict/recent_values.h"

namespace pinion {

/// Returns the loss, 0 to 1, of a prediction that was `off` when `interval` passed. Almost right counts much
/// more than less wrong: where two values alternate, one of them wins over their mean.
inline float prediction_loss(float off, float interval) {
  off = std::abs(off);
  return off / (off + 0.01f * std::max(std::abs(interval), 1.0f));
}

/// 1 / n for n up to 64: every event needs several, and divisions take long.
inline constexpr std::array<float, 65> kOneOver = [] {
  std::array<float, 65> table{};
  for (unsigned n = 1; n < table.size(); ++n) table[n] = 1.0f / static_cast<float>(n);
  return table;
}();

class Interval {
 public:
  void learn(Duration took) {
    const auto value = static_cast<float>(took);
    if (count_ > 0)
      loss_ += kOneOver[std::min<unsigned>(count_, 32u)] * (prediction_loss(usually_ - value, value) - loss_);
    recent_.add(value);
    if (count_ < 255) ++count_;
    follow(value);
  }

  bool known() const { return count_ > 0; }
  Duration expected() const { return nearest(static_cast<double>(usually_)); }
  /// The loss to expect, 0 to 1: the recent one, and while observations are few, that of any.
  float loss() const {
    constexpr float kOfAny = 0.3f, kWeight = 4;
    const auto tested = static_cast<float>(std::min<unsigned>(count_ - 1u, 16u));
    return (tested * loss_ + kWeight * kOfAny) / (tested + kWeight) + 0.1f / static_cast<float>(count_);
  }

  /// One value that was learnt elsewhere.
  void assume(Duration value) {
    *this = {};
    learn(value);
  }

 private:
  float median_of_recent() const { return recent_.sorted()[(recent_.size() - 1) / 2]; }

  void follow(float value) {
    if (count_ < 4) {
      usually_ = median_of_recent();
      spread_ = usually_ - recent_.sorted().front();
      followed_ = count_;
      return;
    }
    const float off = value - usually_;
    const float usual = 4 * spread_ + 0.005f * std::abs(usually_);
    if (std::abs(off) > usual) {
      // Once is an outlier; four times in a row it has changed.
      if (++strange_ < 4) return;
      usually_ = median_of_recent();
      spread_ = std::abs(value - usually_);
      followed_ = 4;
      strange_ = 0;
      return;
    }
    strange_ = 0;
    if (followed_ < 64) ++followed_;
    const float pace = kOneOver[followed_];
    usually_ += pace * off;
    spread_ += std::max(pace, 1.0f / 16) * (std::abs(off) - spread_);
  }

  RecentValues<8> recent_;
  float usually_ = 0, spread_ = 0, loss_ = 0;
  std::uint8_t count_ = 0, followed_ = 0, strange_ = 0;
};

}  // namespace pinion
