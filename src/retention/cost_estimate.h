// The expected costs of the helper's operations: the terms of t_p in the paper's inequality (1),
// section 3.2. Owned by the helper; one thread. Durations in ns.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace pinion {

/// t = a * entries + b, for the translation entries of a registration (its pages, where the device leaves
/// them uncounted). Fitted online by least squares over the recent observations: each weighs 1/32 less than
/// the next. upper() allows for the excess over the line.
///
/// One call may take a thousand times as long as the others, where the host or another process had the core.
/// A single outlier is clamped to within `kFar` times the line. Two outliers in a row on the same side show
/// another device than assumed; the observations before them then keep a small weight only.
class LinearFit {
 public:
  LinearFit(double a_ns, double b_ns) {
    // The prior: two faint observations on its line. Real ones soon outweigh them.
    add(1, a_ns + b_ns, 0.05);
    add(512, 512 * a_ns + b_ns, 0.05);
    solve();
    excess_ = 1;
  }

  void observe(std::size_t entries, Duration took) {
    ++observed_;
    const double x = static_cast<double>(entries), y = static_cast<double>(took);
    const double expected = std::max(1.0, a_ * x + b_);
    const int off = y > kFar * expected ? 1 : y * kFar < expected ? -1 : 0;
    const bool again = off != 0 && off == off_;
    off_ = off;
    keep(again ? kOfAnotherDevice : 1.0 - 1.0 / 32);
    add(x, again ? y : std::clamp(y, expected / kFar, expected * kFar), 1);
    solve();
    // Falls back towards 1 by a tenth of its height at every observation that the line explains.
    const double excess = y / (again ? std::max(1.0, a_ * x + b_) : expected);
    excess_ = std::clamp(excess, again ? 1 : 1 + (excess_ - 1) * 0.9, kFar);
  }

  /// Observations so far: while it is the same, so are all answers.
  std::uint64_t observed() const { return observed_; }
  double a() const { return a_; }
  double b() const { return b_; }
  /// The estimate is at least 0, as both terms are.
  Duration expected(std::size_t entries) const {
    return static_cast<Duration>(a_ * static_cast<double>(entries) + b_ + 0.5);
  }
  /// The paper's "maximum potential cost": the line times the largest recent excess over it.
  Duration upper(std::size_t entries) const {
    return static_cast<Duration>(static_cast<double>(expected(entries)) * excess_ + 0.5);
  }

 private:
  static constexpr double kFar = 4;
  static constexpr double kOfAnotherDevice =
      1.0 / 32;  ///< the weight left to past observations, which then still give a slope

  void add(double x, double y, double w) {
    n_ += w, sx_ += w * x, sy_ += w * y, sxx_ += w * x * x, sxy_ += w * x * y;
  }
  void keep(double w) { n_ *= w, sx_ *= w, sy_ *= w, sxx_ *= w, sxy_ *= w; }
  void solve() {
    const double spread = n_ * sxx_ - sx_ * sx_;
    const double mean_x = sx_ / n_, mean_y = sy_ / n_;
    // All observations of one size leave the slope open: keep the last one (as far as the mean allows).
    if (spread > 1e-6 * n_ * sxx_) a_ = (n_ * sxy_ - sx_ * sy_) / spread;
    a_ = std::clamp(a_, 0.0, mean_y / std::max(1.0, mean_x));
    b_ = std::max(0.0, mean_y - a_ * mean_x);  // rounding could make it negative
  }

  double n_ = 0, sx_ = 0, sy_ = 0, sxx_ = 0, sxy_ = 0;
  double a_ = 0, b_ = 0;
  double excess_ = 1;
  std::uint64_t observed_ = 0;
  int off_ = 0;  ///< the last observation lay far above the line (1), or far below (-1)
};

/// Translation entries that a page takes, over the recent registrations: 1 on ordinary pages, far less on
/// hugepages. It serves memory whose own entries are unknown.
class EntriesAPage {
 public:
  void observe(std::size_t pages, std::size_t entries) {
    constexpr double kKeep = 1.0 - 1.0 / 32;
    pages_ = pages_ * kKeep + static_cast<double>(pages);
    entries_ = entries_ * kKeep + static_cast<double>(entries);
  }
  double value() const { return entries_ / pages_; }
  std::size_t of(std::size_t pages) const {
    return static_cast<std::size_t>(std::max(1.0, std::ceil(static_cast<double>(pages) * value())));
  }

 private:
  double pages_ = 1, entries_ = 1;
};

/// The n-th largest of the last 32 observations.
template <class T, std::size_t n>
class RecentLargest {
 public:
  explicit RecentLargest(T first) : value_(first) { recent_.fill(first); }
  void observe(T value) {
    T& oldest = recent_[next_++ % recent_.size()];
    const bool same = oldest == value || (oldest < value_ && value <= value_);
    oldest = value;
    if (same) return;
    std::array<T, n> largest{};  // in order of size
    std::size_t there = 0;
    for (const T& recent : recent_) {
      if (there == n && recent <= largest[n - 1]) continue;
      std::size_t at = there < n ? there++ : n - 1;
      for (; at > 0 && largest[at - 1] < recent; --at) largest[at] = largest[at - 1];
      largest[at] = recent;
    }
    value_ = largest[n - 1];
  }
  T value() const { return value_; }

 private:
  std::array<T, 32> recent_;
  std::size_t next_ = 0;
  T value_;
};

/// The helper's wake-up lateness: above nine wake-ups in ten, deaf to a single stall.
class WakeMargin {
 public:
  explicit WakeMargin(Duration first) : late_(first), value_(first) {}
  void observe(Duration late) {
    late_.observe(std::max<Duration>(0, late));
    add_up();
  }
  /// An additional wait of the helper: for its turn on a core that it shares (node/policy.h).
  void set_turn(Duration turn) {
    turn_ = turn;
    add_up();
  }
  /// Wake-ups wait for a beat (retention/look_schedule.h).
  void set_beat(Duration beat) {
    beat_ = beat;
    add_up();
  }
  Duration value() const { return value_; }

 private:
  void add_up() { value_ = std::max(late_.value(), turn_) + beat_; }

  RecentLargest<Duration, 3> late_;
  Duration turn_ = 0;
  Duration beat_ = 0;
  Duration value_;
};

/// The terms that are "easy to estimate": a fixed price for each comparison and each look into a table.
struct QueueCosts {
  Duration compare = 10;  ///< one item of a queue or of the registration cache compared
  Duration hash = 200;    ///< searching the call-site table and updating its entry
};

/// Everything the conditions need to know about costs.
struct CostEstimates {
  LinearFit registration;
  LinearFit deregistration;
  EntriesAPage entries_a_page;
  WakeMargin wake;
  QueueCosts queue;

  /// A registration of so many pages took so many translation entries, and so long.
  void registered(std::size_t pages, std::size_t entries, Duration took) {
    registration.observe(entries, took);
    entries_a_page.observe(pages, entries);
  }

  /// Priors: UCX's model of an InfiniBand device; deregistration a quarter of it; waking within 60 us.
  CostEstimates() : registration(246, 16000), deregistration(62, 4000), wake(60 * kMicrosecond) {}
};

}  // namespace pinion
