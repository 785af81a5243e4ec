#include "cli/report/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <utility>
#include <vector>

#include "cli/error_line.h"
#include "cli/output_file.h"

namespace pinion::cli {

namespace {

using runlog::RankReport;
using runlog::Report;

/// With many ranks, reading takes 2 % of the time.
constexpr Duration kShortestPause = kSecond;
constexpr int kPausesPerRefresh = 50;

struct Metric {
  const char *name, *type, *help;
  double (*value)(const RankReport&);
  bool is_sum = true;  ///< of the processes without a rank on a node; else the most
};

double number(std::uint64_t n) { return static_cast<double>(n); }

const Metric kMetrics[] = {
    {"pinion_running", "gauge", "1 while the process runs",
     [](const RankReport& r) { return r.running ? 1.0 : 0.0; }, false},
    {"pinion_run_seconds", "gauge", "Length of the run", [](const RankReport& r) { return r.wall_seconds; },
     false},
    {"pinion_registered_bytes", "gauge", "Registered bytes, at the end of a run those left",
     [](const RankReport& r) { return number(r.registered_now_bytes); }},
    {"pinion_registered_peak_bytes", "gauge", "Most registered bytes at one time",
     [](const RankReport& r) { return number(r.registered.peak); }},
    {"pinion_registered_mean_bytes", "gauge", "Registered bytes, mean over the run",
     [](const RankReport& r) { return std::round(r.registered.mean); }},
    {"pinion_kernel_pinned_peak_bytes", "gauge", "Most bytes that the kernel counted as pinned or locked",
     [](const RankReport& r) { return number(r.kernel_pinned_peak_bytes); }},
    {"pinion_transfers_total", "counter", "Transfers",
     [](const RankReport& r) { return number(r.acquires.total); }},
    {"pinion_misses_total", "counter", "Transfers that registered their memory themselves",
     [](const RankReport& r) { return number(r.acquires.misses); }},
    {"pinion_waits_total", "counter", "Transfers that waited for a registration under way",
     [](const RankReport& r) { return number(r.acquires.waits); }},
    {"pinion_late_total", "counter", "Waits and misses of memory that was used before",
     [](const RankReport& r) { return number(r.acquires.late); }},
    {"pinion_bounced_total", "counter", "Transfers without room for a registration",
     [](const RankReport& r) { return number(r.acquires.bounced); }},
    {"pinion_registrations_total", "counter", "Registrations",
     [](const RankReport& r) { return number(r.registrations); }},
    {"pinion_deregistrations_total", "counter", "Deregistrations",
     [](const RankReport& r) { return number(r.deregistrations); }},
    {"pinion_registration_failures_total", "counter", "Registrations that the device refused",
     [](const RankReport& r) { return number(r.registration_failures); }},
    {"pinion_added_seconds", "gauge", "Time that registration cost beyond leave-pinned's",
     [](const RankReport& r) { return r.cost.added(); }},
    {"pinion_time_budget_spent_seconds", "gauge", "Time budget spent",
     [](const RankReport& r) { return r.budget.spent(); }},
    {"pinion_time_budget_allowed_seconds", "gauge", "Time budget; 0: not bounded",
     [](const RankReport& r) { return r.budget.allowed; }},
    {"pinion_time_budget_by_helper_seconds", "gauge", "Of that, time of the run that the helper's work took",
     [](const RankReport& r) { return r.budget.by_helper; }},
};

/// The value of a label.
std::string quoted_label(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + "\"";
}

/// Without a process id, which would make a series of its own for each run. So the processes of a node that
/// have no rank are one.
std::string labels_of(const Report& report, const RankReport& rank) {
  return fmt::format("{{command={},host={},rank=\"{}\"}}", quoted_label(report.command),
                     quoted_label(rank.host), rank.rank);
}

}  // namespace

std::string prometheus_text(const Report& report) {
  std::string out;
  for (const Metric& metric : kMetrics) {
    out += fmt::format("# HELP {0} {1}.\n# TYPE {0} {2}\n", metric.name, metric.help, metric.type);
    std::map<std::string, double> values;
    for (const RankReport& rank : report.per_rank) {
      double& value = values[labels_of(report, rank)];
      value = metric.is_sum ? value + metric.value(rank) : std::max(value, metric.value(rank));
    }
    for (const auto& [labels, value] : values) out += fmt::format("{}{} {}\n", metric.name, labels, value);
  }
  out +=
      "# HELP pinion_limit_bytes Limit of a process, or of all of a node if that is less; 0: none.\n# TYPE "
      "pinion_limit_bytes gauge\n";
  if (!report.per_rank.empty())
    out += fmt::format("pinion_limit_bytes{{command={}}} {}\n", quoted_label(report.command),
                       report.limit_bytes);
  return out;
}

RunMetrics::RunMetrics(std::string path, std::string logs) : path_(std::move(path)), logs_(std::move(logs)) {
  write_text(path_, prometheus_text({}));
}

Duration RunMetrics::refresh() {
  const Time begin = monotonic_now();
  std::vector<runlog::Log> states;
  const Error error =
      runlog::for_each_state({logs_}, [&](runlog::Log&& log) { states.push_back(std::move(log)); });
  if (!error) write(prometheus_text(runlog::analyse(states)));  // an error: no process has a log yet
  return std::max(kShortestPause, kPausesPerRefresh * (monotonic_now() - begin));
}

void RunMetrics::write(const std::string& text) {
  if (failed_) return;
  try {
    write_text(path_, text);
  } catch (const std::exception& error) {
    failed_ = true;
    print_error_line(fmt::format("metrics: {} (said once)", error.what()));
  }
}

}  // namespace pinion::cli
