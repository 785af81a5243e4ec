#include "runlog/process_figures.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>

#include "runlog/seconds.h"

namespace pinion::runlog {

namespace {

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
  cost.helper_charged = seconds(c.helper_charged_ns);
  cost.leave_pinned = seconds(c.leave_pinned_registration_ns);
  // Leave-pinned that no limit made register anew is what others are compared with.
  if (std::string_view(log.header.retention) == "leave-pinned" && c.late == 0 && c.bounced == 0)
    cost.leave_pinned = cost.registration() + cost.bookkeeping + cost.helper_charged;
  cost.preempted = seconds(c.preempted_ns);
  return cost;
}

PeerHolds holds_of(const Log& log) {
  PeerHolds holds;
  if (!log.all_events()) return holds;
  const Time begin = log.header.start_ns, end = log.last_ns();
  const HoldsTimeline found = holds_timeline(log);
  const Timeline held = found.bytes.clipped(begin, end);
  holds.count = found.count;
  holds.peak = held.peak();
  if (end > begin) holds.mean = held.byte_ns() / static_cast<double>(end - begin);
  return holds;
}

}  // namespace

TimeBudgetUse budget_of(const Counters& c, double ranks) {
  return {(seconds(c.budget_ns) + seconds(c.helper_bound_ns)) / ranks,
          seconds(static_cast<double>(c.budget_on_threads_ns)) / ranks, seconds(c.helper_charged_ns) / ranks,
          seconds(c.preempted_ns) / ranks, c.budget_refused};
}

HelpersHugepages hugepages_of(const Counters& c) {
  HelpersHugepages hugepages{
      c.advised_bytes, c.collapses.bytes, {}, seconds(c.collapses.cpu_ns), seconds(c.collapses.longest_ns)};
  std::copy_n(c.collapses.refused_bytes, kCollapseRefusals, hugepages.refused_bytes);
  return hugepages;
}

PassedOn passed_of(const Counters& c) {
  PassedOn passed;
  std::copy_n(c.passed, kPassedReasons, passed.by);
  return passed;
}

KeyUse keys_of(const Counters& c) { return {seconds(c.exposed_byte_ns), seconds(c.strict_keys_ns)}; }

RankReport rank_report(const Log& log, const MemoryLines& lines) {
  const Counters& c = log.live.counters;
  RankReport r;
  r.host = log.header.host;
  r.acts = log.header.acts;
  r.rank = log.header.rank;
  r.process = log.header.process;
  r.complete = log.live.complete != 0;
  r.running = !r.complete && log.written_to;
  r.stopped_after_seconds = log.live.stopped_after_ms / 1e3;
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
  r.beyond = {c.beyond_bytes, c.beyond_regions, seconds(c.beyond_ns)};
  r.under_pressure = {c.pressure_released_bytes, c.pressure_releases};
  r.kept_all_below_bytes = c.kept_all_below_bytes;
  r.keys = keys_of(c);
  r.passed = passed_of(c);
  r.hugepages = hugepages_of(c);
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

namespace {

void add(Copies& sum, const Copies& copies, std::uint64_t n) {
  sum.count += n * copies.count;
  sum.bytes += n * copies.bytes;
  sum.ns += n * copies.ns;
}

}  // namespace

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
                            &Counters::helper_bound_ns,
                            &Counters::helper_charged_ns,
                            &Counters::copies_verified,
                            &Counters::copies_differing,
                            &Counters::advised_bytes})
    sum.*member += n * c.*member;
  for (unsigned way = 0; way < kCopyWays; ++way) {
    add(sum.copies_to_gpu[way], c.copies_to_gpu[way], n);
    add(sum.copies_from_gpu[way], c.copies_from_gpu[way], n);
  }
  for (unsigned why = 0; why < kPassedReasons; ++why) {
    sum.passed[why].count += n * c.passed[why].count;
    sum.passed[why].bytes += n * c.passed[why].bytes;
  }
  sum.collapses.bytes += n * c.collapses.bytes;
  sum.collapses.cpu_ns += n * c.collapses.cpu_ns;
  sum.collapses.longest_ns = std::max(sum.collapses.longest_ns, c.collapses.longest_ns);
  for (unsigned why = 0; why < kCollapseRefusals; ++why)
    sum.collapses.refused_bytes[why] += n * c.collapses.refused_bytes[why];
  // The sum is unsigned, so that absurd input wraps instead of overflowing.
  sum.budget_on_threads_ns =
      static_cast<std::int64_t>(static_cast<std::uint64_t>(sum.budget_on_threads_ns) +
                                n * static_cast<std::uint64_t>(c.budget_on_threads_ns));
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

GpuCopies copies_of(const Counters& c) {
  GpuCopies copies;
  std::copy_n(c.copies_to_gpu, kCopyWays, copies.to_gpu);
  std::copy_n(c.copies_from_gpu, kCopyWays, copies.from_gpu);
  copies.verified = c.copies_verified;
  copies.differing = c.copies_differing;
  return copies;
}

void add(GpuCopies& sum, const GpuCopies& copies) {
  const auto add_ways = [](Copies(&to)[kCopyWays], const Copies(&from)[kCopyWays]) {
    for (unsigned way = 0; way < kCopyWays; ++way) {
      to[way].count += from[way].count;
      to[way].bytes += from[way].bytes;
      to[way].ns += from[way].ns;
    }
  };
  add_ways(sum.to_gpu, copies.to_gpu);
  add_ways(sum.from_gpu, copies.from_gpu);
}

std::uint64_t HelpersHugepages::refused() const {
  return std::accumulate(std::begin(refused_bytes), std::end(refused_bytes), std::uint64_t{0});
}

Passed PassedOn::all() const {
  Passed sum{};
  for (const Passed& one : by) {
    sum.count += one.count;
    sum.bytes += one.bytes;
  }
  return sum;
}

bool GpuCopies::any() const {
  const auto counts = [](const Copies& copies) { return copies.count != 0; };
  return std::any_of(std::begin(to_gpu), std::end(to_gpu), counts) ||
         std::any_of(std::begin(from_gpu), std::end(from_gpu), counts);
}

const char* to_string(CopyWay way) {
  switch (way) {
    case CopyWay::plain:
      return "plain";
    case CopyWay::staged:
      return "staged";
    case CopyWay::registered:
      break;
  }
  return "registered";
}

const char* to_string(Acts acts) {
  switch (acts) {
    case Acts::pinned:
      return "pinned";
    case Acts::measured:
      return "measured";
    case Acts::cuda:
      return "cuda";
    case Acts::verbs:
      break;
  }
  return "verbs";
}

}  // namespace pinion::runlog
