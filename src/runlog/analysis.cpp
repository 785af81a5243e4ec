#include "runlog/analysis.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/call_kind.h"
#include "base/coverage.h"
#include "runlog/held_after.h"

namespace pinion::runlog {

namespace {

constexpr std::size_t kReportBins = 240;

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

// Returns when the events of a log end; kNever for a complete log.
Time covered_until(const Log& log) {
  if (log.all_events()) return kNever;
  Time last = log.header.start_ns;
  for (const Event& e : log.events) last = std::max(last, e.end_ns);
  return std::min(last, log.last_ns());
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

// The three time lines of one process within its run, or of several on a node, and the times that their means
// are taken over.
struct Lines {
  Time start, last;
  Time covered;       ///< from then on a process lacks events
  bool events_known;  ///< each process has all its events, or its first ones
  Timeline registered, oracle, leave_pinned;
  double registered_byte_ns;

  explicit Lines(const Log& log)
      : start(log.header.start_ns),
        last(log.last_ns()),
        covered(covered_until(log)),
        events_known(log.all_events() || !log.events.empty()) {
    registered = registered_timeline(log).clipped(start, last);
    registered_byte_ns = log.all_events() ? registered.byte_ns() : log.live.counters.registered_byte_ns;
    oracle = oracle_timeline(log).clipped(start, events_end());
    leave_pinned = leave_pinned_timeline(log).clipped(start, events_end());
  }

  // Another process of the same node.
  void add(const Lines& other) {
    start = std::min(start, other.start);
    last = std::max(last, other.last);
    covered = std::min(covered, other.covered);
    events_known = events_known && other.events_known;
    registered.add(other.registered);
    oracle.add(other.oracle);
    leave_pinned.add(other.leave_pinned);
    registered_byte_ns += other.registered_byte_ns;
  }

  // All of a node: in pairs, so that long time lines are copied rarely.
  static Lines sum(std::vector<Lines> of) {
    for (std::size_t step = 1; step < of.size(); step *= 2)
      for (std::size_t i = 0; i + step < of.size(); i += 2 * step) of[i].add(of[i + step]);
    return std::move(of.front());
  }

  MemorySeries series(Time from, Duration bin) const {
    MemorySeries s;
    s.registered = registered.bins(from, bin, kReportBins);
    if (!events_known) return s;
    s.oracle = oracle.bins(from, bin, kReportBins);
    s.leave_pinned = leave_pinned.bins(from, bin, kReportBins);
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

double seconds(double ns) { return ns * 1e-9; }
double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

double share(std::uint64_t part, std::uint64_t whole) {
  return whole ? static_cast<double>(std::min(part, whole)) / static_cast<double>(whole) : 0;
}

Cost cost_of(const Log& log) {
  const Counters& c = log.live.counters;
  Cost cost;
  cost.on_demand = seconds(c.registration_ns);
  cost.waits = seconds(c.wait_ns);
  cost.bounce = seconds(c.bounce_ns);
  if (c.bookkeeping_samples)
    cost.bookkeeping = seconds(c.bookkeeping_ns) * static_cast<double>(c.acquires) /
                       static_cast<double>(c.bookkeeping_samples);
  cost.helper_cpu = seconds(c.helper_cpu_ns);
  cost.helper_charged = seconds(c.helper_share_spent_ns);
  cost.leave_pinned = seconds(c.leave_pinned_registration_ns);
  cost.preempted = seconds(c.preempted_ns);
  return cost;
}

TimeBudgetUse budget_of(const Counters& c) {
  return {seconds(c.budget_ns), seconds(static_cast<double>(c.budget_spent_ns)), c.budget_refused};
}

KeyUse keys_of(const Counters& c) { return {seconds(c.exposed_byte_ns), seconds(c.strict_keys_ns)}; }

PeerHolds holds_of(const Log& log) {
  PeerHolds holds;
  if (!log.all_events()) return holds;
  Moves moves;
  for (const Event& e : log.events) {
    if (e.kind == EventKind::hold_begin) moves.add.push_back({e.begin_ns, &e});
    if (e.kind == EventKind::hold_end) moves.end.push_back({e.begin_ns, &e});
  }
  holds.count = moves.add.size();
  const Time begin = log.header.start_ns, end = log.last_ns();
  const Timeline held = union_over_time(std::move(moves), log.header.page_bytes).clipped(begin, end);
  holds.peak = held.peak();
  if (end > begin) holds.mean = held.byte_ns() / static_cast<double>(end - begin);
  return holds;
}

RankReport rank_report(const Log& log, const Lines& lines) {
  const Counters& c = log.live.counters;
  RankReport r;
  r.host = log.header.host;
  r.acts = log.header.acts;
  r.rank = log.header.rank;
  r.process = log.header.process;
  r.complete = log.live.complete != 0;
  r.running = !r.complete && log.written_to;
  r.wall_seconds = lines.seconds();
  r.registered = lines.figures();
  if (!log.all_events()) r.registered.peak = c.registered_peak_bytes;
  r.acquires = acquires_of(c);
  r.registrations = c.registrations;
  r.deregistrations = c.deregistrations;
  r.registration_failures = c.registration_failures;
  r.registered_now_bytes = c.registered_now_bytes;
  r.pinned_at_exit_bytes = log.live.pinned_at_exit_bytes;
  r.kernel_pinned_peak_bytes = c.kernel_pinned_peak_bytes;
  r.events = log.events.size();
  r.events_dropped = c.events_dropped + c.records_dropped;
  r.records_dropped = c.records_dropped;
  r.cost = cost_of(log);
  r.prediction = prediction_of(c);
  r.budget = budget_of(c);
  r.helper_share = {seconds(c.helper_share_ns), seconds(c.helper_share_spent_ns)};
  r.beyond = {c.beyond_bytes, c.beyond_regions, seconds(c.beyond_ns)};
  r.keys = keys_of(c);
  r.holds = holds_of(log);
  return r;
}

std::vector<DomainReport> domains_of(const Log& log) {
  const auto lasted = static_cast<double>(log.last_ns() - log.header.start_ns);
  std::vector<DomainReport> list;
  for (std::size_t i = 0; i < log.domains.size(); ++i) {
    const DomainEntry& entry = log.domains[i];
    const DomainState& state = log.live.domains[i];
    DomainReport domain;
    domain.number = static_cast<std::uint32_t>(i);
    domain.device = entry.device;
    domain.nic = entry.nic;
    domain.description = entry.description;
    domain.max_regions = entry.max_regions;
    domain.max_region_bytes = entry.max_region_bytes;
    domain.max_bytes = entry.max_bytes;
    domain.ranks = 1;
    domain.peak = state.registered_peak_bytes;
    domain.mean = lasted > 0 ? state.registered_byte_ns / lasted : 0;
    domain.acquires = {state.acquires, state.hits,    state.waits, state.misses, 0,
                       state.bounced,  state.observed};
    domain.registrations = state.registrations;
    domain.deregistrations = state.deregistrations;
    domain.registration_failures = state.registration_failures;
    domain.register_ns_per_page = state.fit_register_a_ns;
    domain.register_ns_base = state.fit_register_b_ns;
    domain.deregister_ns_per_page = state.fit_deregister_a_ns;
    domain.deregister_ns_base = state.fit_deregister_b_ns;
    domain.fitted_registrations = state.registrations;
    list.push_back(std::move(domain));
  }
  return list;
}

Cost operator+(const Cost& a, const Cost& b) {
  return {a.on_demand + b.on_demand,       a.waits + b.waits,           a.bounce + b.bounce,
          a.bookkeeping + b.bookkeeping,   a.helper_cpu + b.helper_cpu, a.helper_charged + b.helper_charged,
          a.leave_pinned + b.leave_pinned, a.preempted + b.preempted};
}

Cost operator/(const Cost& a, double n) {
  return {a.on_demand / n,  a.waits / n,          a.bounce / n,       a.bookkeeping / n,
          a.helper_cpu / n, a.helper_charged / n, a.leave_pinned / n, a.preempted / n};
}

void add_domain(DomainReport& sum, const DomainReport& d) {
  sum.ranks += d.ranks;
  sum.peak += d.peak;
  sum.mean += d.mean;
  sum.acquires += d.acquires;
  sum.registrations += d.registrations;
  sum.deregistrations += d.deregistrations;
  sum.registration_failures += d.registration_failures;
  if (d.fitted_registrations <= sum.fitted_registrations) return;
  sum.fitted_registrations = d.fitted_registrations;
  sum.register_ns_per_page = d.register_ns_per_page;
  sum.register_ns_base = d.register_ns_base;
  sum.deregister_ns_per_page = d.deregister_ns_per_page;
  sum.deregister_ns_base = d.deregister_ns_base;
}

/// Domains by number, device and NIC.
using Domains = std::map<std::tuple<std::uint32_t, std::string, std::string>, DomainReport>;

// Return addresses differ from rank to rank where modules are placed at random; names are equal.
std::string site_key(const SiteEntry* entry, std::uint64_t site) {
  if (entry && entry->name[0]) return entry->name;
  char text[32];
  std::snprintf(text, sizeof text, "site %016llx", static_cast<unsigned long long>(site));
  return site ? text : "unknown";
}

std::vector<SiteFrame> frames_of(const Log& log, const SiteEntry& site) {
  std::vector<SiteFrame> frames;
  for (std::uint32_t i = site.first_frame; i < site.frame_count; ++i) {
    const std::uint64_t address = site.frames[i] - 1;  // the call lies before the return address
    for (const ModuleEntry& module : log.modules)
      if (address >= module.begin && address < module.end)
        frames.push_back({module.path,
                          {reinterpret_cast<const char*>(module.build_id), module.build_id_bytes},
                          address - module.bias});
    if (frames.size() != i - site.first_frame + 1) break;  // further ones would be no callers of these
  }
  return frames;
}

}  // namespace

CallSite call_site_of(const Log& log, const SiteEntry& site) {
  CallSite found;
  found.name = site_key(&site, site.hash);
  found.frames = frames_of(log, site);
  return found;
}

namespace {

/// Call sites by name and call.
using CallSites = std::map<std::pair<std::string, std::uint8_t>, CallSite>;

void add_call_sites(CallSites& sites, const Log& log) {
  std::unordered_map<std::uint64_t, const SiteEntry*> names;
  for (const SiteEntry& site : log.sites) names.emplace(site.hash, &site);
  // Found by number first: building the name for every event would be most of the work.
  std::map<SiteCall, CallSite*> known;
  const auto site_of = [&](SiteCall key) {
    CallSite*& site = known[key];
    if (site) return site;
    const auto found = names.find(key.first);
    const SiteEntry* const entry = found == names.end() ? nullptr : found->second;
    const std::string name = site_key(entry, key.first);
    site = &sites[{name, key.second}];
    site->name = name;
    if (entry) site->frames = frames_of(log, *entry);
    site->call = to_string(static_cast<CallKind>(key.second));
    return site;
  };
  for (const Event& e : log.events) {
    const std::uint64_t uses = uses_of(e);
    if (uses == 0) continue;
    CallSite* const site = site_of({e.site, e.call});
    site->acquires += uses;
    site->bytes += uses * e.bytes;
    site->hits += e.outcome == Outcome::hit ? uses : 0;
    site->waits += e.outcome == Outcome::wait ? uses : 0;
    site->misses += e.outcome == Outcome::miss ? uses : 0;
    site->bounced += e.outcome == Outcome::bounced ? uses : 0;
    site->late += e.flags & kLate ? uses : 0;
    if (e.kind == EventKind::lease) site->wait_seconds += seconds(e.wait_ns);
  }
  for (const auto& [key, byte_ns] : held_after(log)) site_of(key)->held_byte_seconds += seconds(byte_ns);
}

std::vector<CallSite> list_of(const CallSites& sites) {
  std::vector<CallSite> list;
  for (const auto& [key, site] : sites) list.push_back(site);
  std::stable_sort(list.begin(), list.end(), [](const CallSite& a, const CallSite& b) {
    return a.wait_seconds != b.wait_seconds ? a.wait_seconds > b.wait_seconds : a.bytes > b.bytes;
  });
  return list;
}

}  // namespace

CallSite& CallSite::operator+=(const CallSite& other) {
  name = other.name;
  call = other.call;
  if (frames.empty()) frames = other.frames;
  acquires += other.acquires;
  bytes += other.bytes;
  hits += other.hits;
  waits += other.waits;
  misses += other.misses;
  late += other.late;
  bounced += other.bounced;
  wait_seconds += other.wait_seconds;
  held_byte_seconds += other.held_byte_seconds;
  return *this;
}

void add(Counters& sum, const Counters& c, std::uint64_t n) {
  for (const auto member : {&Counters::acquires,
                            &Counters::hits,
                            &Counters::waits,
                            &Counters::misses,
                            &Counters::late,
                            &Counters::bounced,
                            &Counters::observed,
                            &Counters::registrations,
                            &Counters::deregistrations,
                            &Counters::registration_failures,
                            &Counters::wait_ns,
                            &Counters::registration_ns,
                            &Counters::preempted_ns,
                            &Counters::bounce_ns,
                            &Counters::helper_cpu_ns,
                            &Counters::reuses,
                            &Counters::within_0_5,
                            &Counters::within_5,
                            &Counters::at_release_within_0_5,
                            &Counters::at_release_within_5,
                            &Counters::budget_ns,
                            &Counters::budget_refused,
                            &Counters::strict_keys_ns,
                            &Counters::helper_share_ns,
                            &Counters::helper_share_spent_ns})
    sum.*member += n * c.*member;
  // The sum is unsigned, so that absurd input wraps instead of overflowing.
  sum.budget_spent_ns = static_cast<std::int64_t>(static_cast<std::uint64_t>(sum.budget_spent_ns) +
                                                  n * static_cast<std::uint64_t>(c.budget_spent_ns));
  sum.leave_pinned_registration_ns += static_cast<double>(n) * c.leave_pinned_registration_ns;
  sum.exposed_byte_ns += static_cast<double>(n) * c.exposed_byte_ns;
}

Acquires& Acquires::operator+=(const Acquires& other) {
  total += other.total;
  hits += other.hits;
  waits += other.waits;
  misses += other.misses;
  late += other.late;
  bounced += other.bounced;
  observed += other.observed;
  return *this;
}

Acquires acquires_of(const Counters& c) {
  return {c.acquires, c.hits, c.waits, c.misses, c.late, c.bounced, c.observed};
}

Prediction prediction_of(const Counters& c) {
  return {c.reuses,
          c.late,
          share(c.within_0_5, c.reuses),
          share(c.within_5, c.reuses),
          share(c.at_release_within_0_5, c.reuses),
          share(c.at_release_within_5, c.reuses)};
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

namespace {

// One log without its events.
struct Part {
  ProcessHeader header;
  Counters counters;
  Lines lines;
  RankReport rank;
  std::vector<DomainReport> domains;
  CallSites call_sites;

  explicit Part(const Log& log)
      : header(log.header),
        counters(log.live.counters),
        lines(log),
        rank(rank_report(log, lines)),
        domains(domains_of(log)) {
    add_call_sites(call_sites, log);
  }
};

// Sums parts up.
class Analysis {
 public:
  void add(Part&& part);
  /// Returns the report of all parts added, at least one, and uses them up.
  Report report();

 private:
  struct Process {
    Lines lines;
    std::size_t number;  ///< in report_.per_rank, before it is sorted
  };
  using Processes = std::vector<Process>;

  void add_nodes(Report& report);
  NodeReport node(const std::string& host, Processes processes, Report& report);

  Report report_;                           ///< sums; report() adds the rest
  std::map<std::string, Processes> nodes_;  ///< by host
  Domains domains_;
  CallSites call_sites_;
  Counters sum_{};
  Duration covered_ = kNever;
};

bool does_more(Acts acts, Acts than) {
  const auto rank = [](Acts a) { return a == Acts::verbs ? 2 : a == Acts::pinned ? 1 : 0; };
  return rank(acts) > rank(than);
}

void Analysis::add(Part&& part) {
  const ProcessHeader& header = part.header;
  if (report_.ranks++ == 0) {
    report_.command = header.command;
    report_.options = header.options;
    report_.predictor = header.predictor;
    report_.version = header.pinion_version;
    report_.limit_bytes = header.limit_bytes;
    report_.start = header.start_ns;
  }
  if (report_.device.empty() || does_more(header.acts, report_.acts)) {
    report_.acts = header.acts;
    report_.retention = header.retention;
    report_.device = header.device;
  }
  report_.start = std::min(report_.start, header.start_ns);
  const RankReport& rank = part.rank;
  report_.job_ranks = std::max(report_.job_ranks, header.ranks);
  runlog::add(sum_, part.counters);
  report_.pinned_at_exit_bytes += rank.pinned_at_exit_bytes;
  report_.kernel_pinned_peak_bytes += rank.kernel_pinned_peak_bytes;
  report_.events += rank.events;
  report_.events_dropped += rank.events_dropped;
  report_.cost = report_.cost + rank.cost;
  report_.beyond = {std::max(report_.beyond.bytes, rank.beyond.bytes),
                    std::max(report_.beyond.regions, rank.beyond.regions),
                    std::max(report_.beyond.seconds, rank.beyond.seconds)};
  report_.holds = {report_.holds.count + rank.holds.count, report_.holds.peak + rank.holds.peak,
                   report_.holds.mean + rank.holds.mean};
  covered_ = std::min(covered_, part.lines.events_end() - part.lines.start);
  if (!part.lines.events_known) covered_ = 0;
  nodes_[rank.host].push_back({std::move(part.lines), report_.per_rank.size()});
  for (const DomainReport& domain : part.domains) {
    const auto [known, is_new] = domains_.try_emplace({domain.number, domain.device, domain.nic}, domain);
    if (!is_new) add_domain(known->second, domain);
  }
  for (const auto& [key, site] : part.call_sites) call_sites_[key] += site;
  report_.per_rank.push_back(std::move(part.rank));
}

NodeReport Analysis::node(const std::string& host, Processes processes, Report& report) {
  Time start = kNever;
  for (const Process& process : processes) start = std::min(start, process.lines.start);
  std::vector<Lines> of;
  for (Process& process : processes) {
    report.per_rank[process.number].series = process.lines.series(start, report.series_bin);
    of.push_back(std::move(process.lines));
  }
  const Lines lines = Lines::sum(std::move(of));
  return {host, processes.size(), lines.seconds(), lines.figures(), lines.series(start, report.series_bin)};
}

void Analysis::add_nodes(Report& report) {
  Duration longest = 1;
  for (const auto& [host, processes] : nodes_) {
    Time start = kNever, last = 0;
    for (const Process& process : processes) {
      start = std::min(start, process.lines.start);
      last = std::max(last, process.lines.last);
    }
    longest = std::max(longest, last - start);
  }
  constexpr auto bins = static_cast<Duration>(kReportBins);
  report.series_bin = (longest + bins - 1) / bins;
  for (auto& [host, processes] : nodes_) {
    report.nodes.push_back(node(host, std::move(processes), report));
    report.wall_seconds = std::max(report.wall_seconds, report.nodes.back().wall_seconds);
  }
  std::stable_sort(report.nodes.begin(), report.nodes.end(), [](const NodeReport& a, const NodeReport& b) {
    return a.registered.peak > b.registered.peak;
  });
}

Report Analysis::report() {
  Report report = std::move(report_);
  report.cost = report.cost / static_cast<double>(report.ranks);
  report.acquires = acquires_of(sum_);
  report.registrations = sum_.registrations;
  report.deregistrations = sum_.deregistrations;
  report.registration_failures = sum_.registration_failures;
  report.prediction = prediction_of(sum_);
  report.budget = budget_of(sum_);
  report.budget.allowed /= report.ranks;
  report.budget.spent /= report.ranks;
  report.helper_share = {seconds(sum_.helper_share_ns) / report.ranks,
                         seconds(sum_.helper_share_spent_ns) / report.ranks};
  report.keys = keys_of(sum_);
  report.keys.strict_seconds /= report.ranks;
  add_nodes(report);
  report.events_cover_seconds =
      report.all_events() ? report.wall_seconds : seconds(static_cast<double>(covered_));
  std::stable_sort(report.per_rank.begin(), report.per_rank.end(),
                   [](const RankReport& a, const RankReport& b) {
                     return a.host != b.host ? a.host < b.host : a.rank < b.rank;
                   });
  for (auto& [key, domain] : domains_) report.domains.push_back(std::move(domain));
  report.call_sites = list_of(call_sites_);
  return report;
}

}  // namespace

const char* to_string(Acts acts) {
  switch (acts) {
    case Acts::pinned:
      return "pinned";
    case Acts::measured:
      return "measured";
    case Acts::verbs:
      break;
  }
  return "verbs";
}

Report analyse(const std::vector<Log>& logs) {
  Analysis analysis;
  for (const Log& log : logs) analysis.add(Part(log));
  return analysis.report();
}

Error analyse(const std::vector<std::string>& paths, Report& report) {
  Analysis analysis;
  // A log for each core at a time, while the next one is read; where threads are unavailable, in turn.
  const std::size_t cores = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  std::deque<std::future<Part>> parts;
  const auto take_first = [&] {
    analysis.add(parts.front().get());
    parts.pop_front();
  };
  const Error error = for_each_log(paths, [&](Log&& log) {
    if (parts.size() == cores) take_first();
    // The function must be copyable: async() that finds no thread begins again with the same function.
    const auto part = [log = std::make_shared<const Log>(std::move(log))] { return Part(*log); };
    parts.push_back(std::async(part));
  });
  while (!parts.empty()) take_first();
  if (!error) report = analysis.report();
  return error;
}

}  // namespace pinion::runlog
