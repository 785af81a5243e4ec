// The paper's baseline (section 6, "periodicity-based"): the Dynamic Periodicity Detector of Freitag et al.
// over the stream of communication points. With a window of N points,
//
//   d(m) = sign( sum over i < N of |x[n-i] - x[n-i-m]| ),
//
// and the stream's period is the smallest m with d(m) = 0. The sum is zero when the last N points equal those
// m before them, so a count per lag of equal points in a row decides the same at O(1) a lag. Long windows
// learn late, short ones see false periods.
//
// A buffer's next use is predicted when it is used, one full reuse ahead: the points that followed m ago will
// follow again, after the same time. The prediction then stands until the use.
#pragma once

#include <array>
#include <vector>

#include "predict/predictor.h"

namespace pinion {

class PeriodicityPredictor final : public Predictor {
 public:
  static constexpr unsigned kLongestPeriod = 256;

  /// `window`: points compared, at least one.
  explicit PeriodicityPredictor(unsigned window) : window_(window) {}

  const char* name() const override { return "periodicity"; }
  Observed observe(const Use& use) override;
  Time next_use(BufferId buffer, Time after) const override;
  void forget(BufferId buffer) override;

  /// The period of a thread's stream; 0: none.
  unsigned period(std::uint16_t thread) const;

 private:
  struct Point {
    std::uint64_t value = 0;
    BufferId buffer = 0;
    Time time = 0;
  };
  struct Stream {
    std::array<Point, kLongestPeriod + 1> points{};  ///< x[n - i] is points[(count - 1 - i) % size]
    /// By lag: points equal to those so many before, in a row.
    std::array<std::uint32_t, kLongestPeriod + 1> equal{};
    std::uint64_t count = 0;

    const Point& back(std::uint64_t i) const { return points[(count - 1 - i) % points.size()]; }
  };
  unsigned period_of(const Stream& stream) const;

  struct Buffer {
    Time next = kNever;
    std::uint32_t incarnation = 0;  ///< differs for buffers that had the number one after the other
  };

  const unsigned window_;
  std::vector<Stream> streams_;  // by thread
  std::vector<Buffer> buffers_;
};

}  // namespace pinion
