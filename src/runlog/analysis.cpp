#include "runlog/analysis.h"

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "runlog/call_site_figures.h"
#include "runlog/memory_lines.h"
#include "runlog/process_figures.h"
#include "runlog/seconds.h"

namespace pinion::runlog {

namespace {

/// Domains by number, device and NIC.
using Domains = std::map<std::tuple<std::uint32_t, std::string, std::string>, DomainReport>;

// One log without its events.
struct Part {
  ProcessHeader header;
  Counters counters;
  MemoryLines lines;
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
    MemoryLines lines;
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
  const auto rank = [](Acts a) { return a == Acts::measured ? 0 : a == Acts::pinned ? 1 : 2; };
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
  report_.under_pressure = {report_.under_pressure.bytes + rank.under_pressure.bytes,
                            std::max(report_.under_pressure.times, rank.under_pressure.times)};
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
  std::vector<MemoryLines> of;
  for (Process& process : processes) {
    report.per_rank[process.number].series = process.lines.series(start, report.series_bin);
    of.push_back(std::move(process.lines));
  }
  const MemoryLines lines = MemoryLines::sum(std::move(of));
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
  constexpr auto bins = static_cast<Duration>(MemoryLines::kBins);
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
  report.budget = budget_of(sum_, report.ranks);
  report.kept_all_below_bytes = UINT64_MAX;
  for (const RankReport& rank : report.per_rank)
    report.kept_all_below_bytes = std::min(report.kept_all_below_bytes, rank.kept_all_below_bytes);
  if (report.per_rank.empty()) report.kept_all_below_bytes = 0;
  report.copies = copies_of(sum_);
  report.keys = keys_of(sum_);
  report.passed = passed_of(sum_);
  report.hugepages = hugepages_of(sum_);
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
