// The predictors that the default one is measured against: the helper-threads paper's own, and its baseline.
// predictor.cpp has their code. Each is one thread's, as every predictor.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/mix.h"
#include "predict/predictor.h"

namespace pinion {

/// Context signatures as in section 3.1 of the helper-threads paper: the current call site (stack frames and
/// buffer) and a window of the previous communication points (kind and address) of the same thread.
class ContextWindow {
 public:
  static constexpr unsigned kLongest = 8;

  explicit ContextWindow(unsigned length) : length_(length < kLongest ? length : kLongest) {}

  /// The signature of `use`; afterwards the use is part of the thread's window. Buffers that begin at
  /// one address and differ in size have different signatures: a site that sends them in turn uses each at
  /// its own period.
  std::uint64_t enter(const Use& use) {
    auto& previous = grown(threads_, use.thread);
    std::uint64_t signature = mix(mix(mix(1, use.site), use.address), use.buffer);
    for (unsigned i = 0; i < length_; ++i) signature = mix(signature, previous[i]);
    for (unsigned i = kLongest - 1; i > 0; --i) previous[i] = previous[i - 1];
    previous[0] = mix(static_cast<std::uint64_t>(use.kind), use.address);
    return signature;
  }

 private:
  const unsigned length_;
  std::vector<std::array<std::uint64_t, kLongest>> threads_;
};

/// The paper's predictor (section 4.2): a hash table of call sites in context; each entry keeps the time of
/// its last use and the shortest interval ever seen between two of its uses. A buffer's next use is the
/// earliest "last use + shortest interval" of the entries that use it.
class ShortestPredictor final : public Predictor {
 public:
  explicit ShortestPredictor(unsigned window) : context_(window) {}

  const char* name() const override { return "shortest"; }
  Observed observe(const Use& use) override;
  Time next_use(BufferId buffer, Time after) const override;
  void forget(BufferId buffer) override;

  std::size_t entries() const { return entries_.size(); }

 private:
  using Signature = std::uint64_t;
  void learn(const Use& use);
  struct Entry {
    Time last = 0;
    Duration period = 0;  ///< shortest interval; 0: used once only
  };
  // A buffer that was used in more contexts than this forgets the one used longest ago.
  static constexpr std::size_t kContextsPerBuffer = 32;

  ContextWindow context_;
  std::unordered_map<Signature, Entry> entries_;
  std::vector<std::vector<Signature>> contexts_of_;  // by buffer
};

/// The paper's baseline (section 6, "periodicity-based"): the Dynamic Periodicity Detector of Freitag et al.
/// over the stream of communication points. With a window of N points,
///
///   d(m) = sign( sum over i < N of |x[n-i] - x[n-i-m]| ),
///
/// and the stream's period is the smallest m with d(m) = 0. The sum is zero when the last N points equal
/// those m before them, so a count per lag of equal points in a row decides the same at O(1) a lag. Long
/// windows learn late, short ones see false periods.
///
/// A buffer's next use is predicted when it is used, one full reuse ahead: the points that followed m ago
/// will follow again, after the same time. The prediction then stands until the use.
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
