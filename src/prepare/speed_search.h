// Finds how many threads are worth their cores: starts small, doubles while the measured throughput grows,
// then takes away threads that add nothing. A pure object: the caller measures for some time with threads()
// at work, reports the throughput, and follows the answer. One thread at a time.
//
//   growing      2, 4, 8, ... while each doubling brings a sixth more
//   between      half as many again as the best count, where twice as many are too many
//   narrowing    halves the interval between the best count and the largest count known to be slower
//   settled      keeps the best count; after a while it tries again from its half
//
// A throughput that disappoints is measured twice, and the better figure counts: other work slows a
// measurement, nothing makes it faster.
#pragma once

#include <algorithm>

namespace pinion {

class SpeedSearch {
 public:
  /// `first` and `most` threads; a `first` that equals `most` begins with narrowing.
  SpeedSearch(unsigned first, unsigned most)
      : most_(std::max(most, 1U)), threads_(std::clamp(first, 1U, most_)) {}

  unsigned threads() const { return threads_; }
  bool settled() const { return stage_ == Stage::settled; }

  /// The throughput with threads() at work, in any unit. Returns the new threads().
  unsigned measured(double speed) {
    if (stage_ == Stage::settled) return rest();
    trial_ = std::max(trial_, speed);
    const bool good = best_ == 0 || trial_ >= best_speed_ * (stage_ == Stage::narrowing ? kKeeps : kGrows);
    if (!good && !second_look_) {
      second_look_ = true;
      return threads_;
    }
    stage_ == Stage::narrowing ? narrow(good) : grow(good);
    trial_ = 0;
    second_look_ = false;
    return threads_;
  }

 private:
  enum class Stage { growing, between, narrowing, settled };
  static constexpr double kGrows = 1.17;
  static constexpr double kKeeps = 0.95;
  static constexpr unsigned kRest = 100;  ///< measurements

  void grow(bool good) {
    if (good) {
      slower_ = best_;
      best_ = threads_;
      best_speed_ = trial_;
    }
    if (stage_ == Stage::growing) {
      threads_ = good ? std::min(best_ * 2, most_) : std::min(best_ + best_ / 2, threads_ - 1);
      if (!good) stage_ = Stage::between;
      if (threads_ != best_) return;
    }
    stage_ = Stage::narrowing;
    try_between();
  }
  void narrow(bool good) {
    if (good)
      best_ = threads_;
    else
      slower_ = threads_;
    try_between();
  }
  void try_between() {
    threads_ = best_;
    if (best_ - slower_ <= std::max(1U, best_ / 8))
      stage_ = Stage::settled;
    else
      threads_ = slower_ + (best_ - slower_) / 2;
  }
  unsigned rest() {
    if (++rested_ < kRest || most_ == 1) return threads_;
    const unsigned from = std::max(1U, best_ / 2);
    const unsigned most = most_;
    *this = SpeedSearch(from, most);
    return threads_;
  }

  unsigned most_;
  unsigned threads_;
  Stage stage_ = Stage::growing;
  unsigned best_ = 0, slower_ = 0;  ///< counts of threads; 0: none known
  double best_speed_ = 0;
  double trial_ = 0;
  bool second_look_ = false;
  unsigned rested_ = 0;
};

/// Finds the size of a registration: doubles while larger ones cost less for each byte, and stay short.
/// Likewise pure.
class PieceSearch {
 public:
  PieceSearch(double first, double most) : bytes_(first), most_(most) {}

  double bytes() const { return bytes_; }

  /// The time of one registration, in ms. Others than of the present size are left out.
  void registered(double bytes, double ms) {
    if (settled_ || bytes != bytes_) return;
    trial_ = samples_ == 0 ? ms : std::min(trial_, ms);
    if (++samples_ < kSamples) return;
    const double cost = trial_ / bytes;
    const bool gains = best_cost_ == 0 || cost < best_cost_ * kGains;
    if (!gains) bytes_ /= 2;
    settled_ = !gains || trial_ > kLong / 2 || bytes_ >= most_;
    if (settled_) return;
    best_cost_ = cost;
    samples_ = 0;
    bytes_ = std::min(bytes_ * 2, most_);
  }

 private:
  static constexpr unsigned kSamples = 4;
  static constexpr double kGains = 0.93;
  static constexpr double kLong = 4;  ///< ms: a registration that a transfer may have to wait for

  double bytes_;
  const double most_;
  double best_cost_ = 0, trial_ = 0;
  unsigned samples_ = 0;
  bool settled_ = false;
};

}  // namespace pinion
