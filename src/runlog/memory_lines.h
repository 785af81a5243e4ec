// The time lines of one process's memory within its run, or of several processes on a node, and the figures
// of them. Values; any thread.
#pragma once

#include <vector>

#include "runlog/analysis.h"

namespace pinion::runlog {

/// Three time lines, and the times that their means are taken over.
struct MemoryLines {
  Time start, last;
  Time covered;       ///< from then on a process lacks events
  bool events_known;  ///< each process has all its events, or its first ones, and they tell what was in use
  Timeline registered, oracle, leave_pinned;
  double registered_byte_ns;

  static constexpr std::size_t kBins = 240;  ///< of a series

  explicit MemoryLines(const Log& log)
      : start(log.header.start_ns),
        last(log.last_ns()),
        covered(covered_until(log)),
        events_known(log.all_events() || !log.events.empty()) {
    registered = registered_timeline(log).clipped(start, last);
    registered_byte_ns = log.all_events() ? registered.byte_ns() : log.live.counters.registered_byte_ns;
    oracle = oracle_timeline(log).clipped(start, events_end());
    leave_pinned = leave_pinned_timeline(log).clipped(start, events_end());
    // A lease is an event once it ends: in a process that was cut short, the last ones are missing.
    if (!log.live.complete && registered.peak() > leave_pinned.peak()) events_known = false;
  }

  /// Adds another process of the same node.
  void add(const MemoryLines& other) {
    start = std::min(start, other.start);
    last = std::max(last, other.last);
    covered = std::min(covered, other.covered);
    events_known = events_known && other.events_known;
    registered.add(other.registered);
    oracle.add(other.oracle);
    leave_pinned.add(other.leave_pinned);
    registered_byte_ns += other.registered_byte_ns;
  }

  /// Adds up all of a node, at least one: in pairs, so that long time lines are copied rarely.
  static MemoryLines sum(std::vector<MemoryLines> of) {
    for (std::size_t step = 1; step < of.size(); step *= 2)
      for (std::size_t i = 0; i + step < of.size(); i += 2 * step) of[i].add(of[i + step]);
    return std::move(of.front());
  }

  MemorySeries series(Time from, Duration bin) const {
    MemorySeries s;
    s.registered = registered.bins(from, bin, kBins);
    if (!events_known) return s;
    s.oracle = oracle.bins(from, bin, kBins);
    s.leave_pinned = leave_pinned.bins(from, bin, kBins);
    return s;
  }

  double seconds() const { return static_cast<double>(last - start) * 1e-9; }
  Time events_end() const { return std::max(start, std::min(covered, last)); }

  RegisteredBytes figures() const {
    const auto mean = [](double byte_ns, Duration over) {
      return over > 0 ? byte_ns / static_cast<double>(over) : 0;
    };
    RegisteredBytes r;
    r.peak = registered.peak();
    r.mean = mean(registered_byte_ns, last - start);
    const Time end = events_end();
    r.bounds_known = events_known;
    const auto bound = [&](const Timeline& line, std::uint64_t& peak, double& mean_bytes) {
      const Timeline known = covered == kNever ? line : line.clipped(start, end);
      peak = known.peak();
      mean_bytes = mean(known.byte_ns(), end - start);
    };
    bound(oracle, r.oracle_peak, r.oracle_mean);
    bound(leave_pinned, r.leave_pinned_peak, r.leave_pinned_mean);
    return r;
  }
};
}  // namespace pinion::runlog
