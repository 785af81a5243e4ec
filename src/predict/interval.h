// The time that a repeated event takes: several estimates, of which the one with the least recent loss is
// used. Values in ns.
//
//   steady   mean of the last 64 or so, deaf to single outliers: noise averages out
//   median   of the last 8: right while some are far off, and 4 turns after a change
//   least    of the last 8: right where now and then something comes in between
//   latest   right 1 turn after a change
//   trend    a line through the last 16 or so: right while the value drifts
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/clock.h"
#include "predict/recent_values.h"

namespace pinion {

/// Returns the loss, 0 to 1, of a prediction that was `off` when `interval` passed. Almost right counts much
/// more than less wrong: where two values alternate, one of them wins over their mean.
inline float prediction_loss(float off, float interval) {
  off = std::abs(off);
  return off / (off + 0.01f * std::max(std::abs(interval), 1.0f));
}

/// Calculated with at once.
using Four = float __attribute__((vector_size(16)));

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
    if (count_ == 0) {
      said_[steady] = level_ = level_of_level_ = value;
    } else {
      judge(value);
    }
    recent_.add(value);
    if (count_ < 255) ++count_;
    follow(value);
    // Brown's double exponential smoothing.
    const float pace = kOneOver[std::clamp<unsigned>(count_, 2u, 8u)];
    level_ += pace * (value - level_);
    level_of_level_ += pace * (level_ - level_of_level_);
    said_[least] = least_of_recent();
    said_[median] = median_of_recent();
    said_[latest] = value;
    said_[trend] = 2 * level_ - level_of_level_ + pace / (1 - pace) * (level_ - level_of_level_);
    believed_ = best();
  }

  bool known() const { return count_ > 0; }
  unsigned count() const { return count_; }
  Duration expected() const { return nearest(static_cast<double>(said_[believed_])); }
  /// The loss to expect of the estimate in use, 0 to 1: its recent one, and while observations are few, that
  /// of any.
  float loss() const {
    constexpr float kOfAny = 0.3f, kWeight = 4;
    const auto tested = static_cast<float>(std::min<unsigned>(count_ - 1u, 16u));
    return (tested * loss_[believed_] + kWeight * kOfAny) / (tested + kWeight) +
           0.1f / static_cast<float>(count_);
  }

  /// One value that was learnt elsewhere.
  void assume(Duration value) {
    *this = {};
    learn(value);
  }

 private:
  enum Estimate : std::uint8_t { steady, least, median, latest, trend };
  static constexpr unsigned kEstimates = 5;

  /// prediction_loss() of each estimate, four at a time: this is most of the cost of an event.
  void judge(float value) {
    const float pace = kOneOver[std::min<unsigned>(count_, 32u)];
    Four said, loss;
    std::memcpy(&said, said_.data(), sizeof said);
    std::memcpy(&loss, loss_.data(), sizeof loss);
    const Four difference = said - value;
    const Four off = difference < 0 ? -difference : difference;
    loss += pace * (off / (off + 0.01f * std::max(std::abs(value), 1.0f)) - loss);
    std::memcpy(loss_.data(), &loss, sizeof loss);
    loss_[trend] += pace * (prediction_loss(said_[trend] - value, value) - loss_[trend]);
  }

  float least_of_recent() const { return recent_.sorted().front(); }
  float median_of_recent() const { return recent_.sorted()[(recent_.size() - 1) / 2]; }

  void follow(float value) {
    float& usually = said_[steady];
    if (count_ < 4) {
      usually = median_of_recent();
      spread_ = usually - least_of_recent();
      followed_ = count_;
      return;
    }
    const float off = value - usually;
    const float usual = 4 * spread_ + 0.005f * std::abs(usually);
    if (std::abs(off) > usual) {
      // Once is an outlier; four times in a row it has changed.
      if (++strange_ < 4) return;
      usually = median_of_recent();
      spread_ = std::abs(value - usually);
      followed_ = 4;
      strange_ = 0;
      return;
    }
    strange_ = 0;
    if (followed_ < 64) ++followed_;
    const float pace = kOneOver[followed_];
    usually += pace * off;
    spread_ += std::max(pace, 1.0f / 16) * (std::abs(off) - spread_);
  }

  std::uint8_t best() const {
    // The calmest one, except where another is clearly better: the less calm, and the fewer observations, the
    // clearer. Where something can be known at all, too early is better than too late.
    const float for_least = loss_[least] < 0.6f ? 1.02f : 0.95f;
    const float factor[kEstimates] = {1, for_least, 0.85f, 0.85f, 0.97f};
    constexpr float kFew[kEstimates] = {0, 0.3f, 0.3f, 0.1f, 0.2f};
    std::uint8_t best = steady;
#pragma GCC unroll 4
    for (std::uint8_t i = 1; i < kEstimates; ++i) {
      if (loss_[i] >= factor[i] * loss_[best]) continue;
      const float few = best == steady ? kFew[i] / static_cast<float>(count_) : 0;
      if (loss_[i] + few < factor[i] * loss_[best]) best = i;
    }
    return best;
  }

  RecentValues<8> recent_;
  float spread_ = 0, level_ = 0, level_of_level_ = 0;
  std::array<float, kEstimates> said_{}, loss_{};  ///< by each estimate
  std::uint8_t count_ = 0, followed_ = 0, strange_ = 0, believed_ = steady;
};

}  // namespace pinion
