#include "runlog/log_timelines.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/coverage.h"

namespace pinion::runlog {

namespace {

// A range begins or ends to be held at an instant.
struct Move {
  Time time;
  const Event* event;
};

// The times at which ranges begin and end to be held. Mostly both are in order already: logs are in order of
// end.
struct Moves {
  std::vector<Move> add, end;
  bool forget = false;  ///< pages that end are gone altogether, however often they are held, in all domains
};

void in_order(std::vector<Move>& moves) {
  const auto earlier = [](const Move& a, const Move& b) { return a.time < b.time; };
  if (!std::is_sorted(moves.begin(), moves.end(), earlier)) std::sort(moves.begin(), moves.end(), earlier);
}

// The sum over domains of their unions. `added(move, bytes)` is called with the bytes by which each range
// that is held made it grow.
template <class F>
Timeline union_over_time(Moves& moves, std::uint64_t page_bytes, F&& added) {
  in_order(moves.add);
  in_order(moves.end);
  std::array<Coverage, kMaxDomains> domains;
  Timeline line;
  auto end = moves.end.begin();
  const auto end_until = [&](Time time) {
    for (; end != moves.end.end() && end->time <= time; ++end) {
      const Range pages = pages_of(*end->event, page_bytes);
      std::size_t bytes = 0;
      if (moves.forget)
        for (Coverage& domain : domains) bytes += domain.erase(pages);
      else
        bytes = domains[end->event->domain].remove(pages);
      line.change(end->time, -static_cast<std::int64_t>(bytes));
    }
  };
  for (Move& move : moves.add) {
    end_until(move.time);  // ends at an instant go before begins
    const std::size_t bytes = domains[move.event->domain].add(pages_of(*move.event, page_bytes));
    line.change(move.time, static_cast<std::int64_t>(bytes));
    added(move, bytes);
  }
  end_until(kNever);
  return line;
}

Timeline union_over_time(Moves moves, std::uint64_t page_bytes) {
  return union_over_time(moves, page_bytes, [](const Move&, std::size_t) {});
}

// The transfer itself: a lease begins with its acquire, which may have registered or waited.
Time transfer_begin(const Event& e) {
  if (e.kind == EventKind::uses) return e.begin_ns;
  const auto lasted = static_cast<std::uint64_t>(e.end_ns - e.begin_ns);
  return e.begin_ns + static_cast<Duration>(std::min(e.wait_ns, lasted));
}
// One that was shorter than the clock's tick still held its pages.
Time transfer_end(const Event& e) { return std::max(e.end_ns, transfer_begin(e) + 1); }

// The time to register pages in the domain of `e`, by the fit of the run's own calls.
double registration_ns(const Log& log, const Event& e, std::uint64_t bytes) {
  const DomainState& domain = log.live.domains[e.domain];
  const auto pages = static_cast<double>(bytes / log.header.page_bytes);
  return domain.fit_register_a_ns * pages + domain.fit_register_b_ns;
}

// Returns when the oracle lets the pages of `e` go. A run of uses counts as one lease from its first acquire
// on: it lasts as long as its leases together, and the time to register again ahead of each but the first.
Time held_until(const Log& log, const Event& e) {
  if (e.kind != EventKind::uses || e.count < 2) return transfer_end(e);
  const auto lasted = static_cast<double>(e.end_ns - e.begin_ns), further = e.count - 1.0;
  const double leased = std::min(static_cast<double>(e.leased_ns), lasted);
  const double ahead = registration_ns(log, e, pages_of(e, log.header.page_bytes).bytes());
  const double held = leased + further * std::min(ahead, (lasted - leased) / further);
  // Rounding must not lead beyond the run.
  return e.begin_ns +
         std::clamp<Duration>(static_cast<Duration>(held), 1, std::max<Duration>(1, e.end_ns - e.begin_ns));
}

// Registered bytes from the online time series, for logs that lack events. Bins count with their peaks, so
// sums over ranks are too high where peaks in a bin do not coincide.
Timeline series_timeline(const Log& log) {
  Timeline line;
  std::uint64_t level = 0;
  Time time = log.header.start_ns;
  for (const SeriesBin& bin : log.live.series) {
    if (time >= log.last_ns()) break;
    line.change(time, static_cast<std::int64_t>(bin.peak_bytes - level));
    level = bin.peak_bytes;
    time += log.live.series_bin_ns;
  }
  return line;
}

Timeline event_timeline(const Log& log) {
  Moves moves;
  for (const Event& e : log.events) {
    if (e.flags & kFailed) continue;
    if (e.kind == EventKind::registration) moves.add.push_back({e.begin_ns, &e});
    if (e.kind == EventKind::deregistration) moves.end.push_back({e.end_ns, &e});
  }
  return union_over_time(std::move(moves), log.header.page_bytes);
}

}  // namespace

Time covered_until(const Log& log) {
  if (log.all_events()) return kNever;
  Time last = log.header.start_ns;
  for (const Event& e : log.events) last = std::max(last, e.end_ns);
  return std::min(last, log.last_ns());
}

Timeline registered_timeline(const Log& log) {
  return log.all_events() ? event_timeline(log) : series_timeline(log);
}

Timeline oracle_timeline(const Log& log) {
  Moves moves;
  std::map<std::pair<Address, std::uint8_t>, Time> of_runs;  // the end of the last one that begins there
  for (const Event& e : log.events) {
    if (uses_of(e) == 0) continue;
    const Time begin = transfer_begin(e), end = held_until(log, e);
    Duration later = 0;
    if (e.kind == EventKind::uses) {
      // Runs of one buffer from several call sites at a time: their leases came by turns.
      Time& other = of_runs[{e.address, e.domain}];
      later = std::clamp<Duration>(other - begin, 0, std::max<Duration>(e.end_ns - end, 0));
      other = std::max(other, end + later);
    }
    moves.add.push_back({begin + later, &e});
    moves.end.push_back({end + later, &e});
  }
  // A first pass finds which pages of each lease are not under another; the oracle begins to register them as
  // long before the lease as that takes.
  union_over_time(moves, log.header.page_bytes, [&](Move& move, std::size_t new_bytes) {
    if (new_bytes == 0) return;
    move.time -= static_cast<Duration>(
        std::min(registration_ns(log, *move.event, new_bytes), static_cast<double>(move.event->begin_ns)));
  });
  return union_over_time(std::move(moves), log.header.page_bytes);
}

Timeline leave_pinned_timeline(const Log& log) {
  Moves moves;
  moves.forget = true;
  for (const Event& e : log.events) {
    if (uses_of(e) > 0) moves.add.push_back({e.begin_ns, &e});
    if (e.kind == EventKind::memory_event) moves.end.push_back({e.begin_ns, &e});
  }
  return union_over_time(std::move(moves), log.header.page_bytes);
}

HoldsTimeline holds_timeline(const Log& log) {
  Moves moves;
  for (const Event& e : log.events) {
    if (e.kind == EventKind::hold_begin) moves.add.push_back({e.begin_ns, &e});
    if (e.kind == EventKind::hold_end) moves.end.push_back({e.begin_ns, &e});
  }
  const std::uint64_t count = moves.add.size();
  return {count, union_over_time(std::move(moves), log.header.page_bytes)};
}

}  // namespace pinion::runlog
