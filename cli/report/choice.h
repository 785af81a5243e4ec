// The choice among ways to run a program, by the memory that each holds and the time that each adds.
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinion::cli {

/// The figures of a way, of one node: bytes and seconds.
struct WayFigures {
  double peak = 0, mean = 0;
  double added = 0;
  std::uint64_t refused = 0;  ///< transfers that found no room
  bool operator==(const WayFigures&) const = default;
};

/// Returns whether `a` is no worse than `b` in peak, mean and time, better in one, and refuses no more.
bool beats(const WayFigures& a, const WayFigures& b);

/// The ways that none of the others beats, among those that refuse least.
std::vector<std::size_t> unbeaten(const std::vector<WayFigures>& ways);

/// The conditions of a choice.
struct ChoiceTerms {
  double seconds = 0;         ///< of the run
  double least_gain = 0;      ///< bytes; a way that frees less is not worth a change
  std::size_t pinned = 0;     ///< the way that keeps everything registered: others are compared with it
  std::size_t present = 0;    ///< what the user has
  bool memory_short = false;  ///< a limit binds: any gain counts
};

/// Returns whether a way adds at most kWorthPaying of the run beyond what `pinned` adds.
bool adds_little(const WayFigures& way, const WayFigures& pinned, double seconds);

/// Returns the way to recommend: an unbeaten one that adds at most kWorthPaying of the run, and frees memory
/// worth a change. The present one stays where it is as good but for kWorthChanging, beaten or not. Else
/// `pinned`.
std::size_t choose(const std::vector<WayFigures>& ways, const ChoiceTerms& terms);

inline constexpr double kWorthPaying = 0.01;    ///< share of the run
inline constexpr double kWorthChanging = 0.05;  ///< share of leave-pinned's memory

}  // namespace pinion::cli
