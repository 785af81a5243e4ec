// A generator whose numbers are the same on every machine and with every library (SplitMix64), so that a seed
// names a run. A value.
#pragma once

#include <cstdint>

namespace pinion::simulate {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  /// Returns a number of [0, 1).
  double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// Returns a number of [from, to).
  double between(double from, double to) { return from + (to - from) * unit(); }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

 private:
  std::uint64_t state_;
};

/// The seed of part `part` of the sequence of `seed`.
inline std::uint64_t seed_of(std::uint64_t seed, std::uint64_t part) {
  return Random(seed ^ (part + 1) * 0xD1342543DE82EF95ull).next();
}

}  // namespace pinion::simulate
