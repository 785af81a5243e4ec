#include "cli/simulate/paper_measured.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "base/units.h"
#include "cli/command.h"
#include "cli/simulate/paper_parts.h"
#include "cli/report/report_json.h"

namespace pinion::cli {

namespace {

using Row = PaperResult::Row;
constexpr const char* kLatency = "latency_us";
constexpr const char* kPeak = "registered_peak_bytes";
constexpr const char* kMean = "registered_mean_bytes";

/// The rows of one provider.
class Measured {
 public:
  void add(const std::string& name, const std::string& subject, const std::string& metric, double value) {
    values_[name + ' ' + subject + ' ' + metric] = value;
    cases_.insert(name);
  }
  std::optional<double> value(const std::string& name, const char* subject, const char* metric) const {
    const auto found = values_.find(name + ' ' + subject + ' ' + metric);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Of one subject over another; absent where a row is, or nothing to divide by.
  std::optional<double> ratio(const std::string& name, const char* of, const char* over,
                              const char* metric) const {
    const auto above = value(name, of, metric), below = value(name, over, metric);
    return above && below && *below > 0 ? std::optional(*above / *below) : std::nullopt;
  }
  /// The sizes of cases PREFIX-SIZE, in rising order.
  std::map<std::uint64_t, std::string> sizes(const std::string& prefix) const {
    std::map<std::uint64_t, std::string> sizes;
    for (const std::string& name : cases_)
      if (name.compare(0, prefix.size() + 1, prefix + '-') == 0)
        if (const auto size = parse_size(name.substr(prefix.size() + 1)))
          sizes[*size] = name.substr(prefix.size() + 1);
    return sizes;
  }

 private:
  std::map<std::string, double> values_;
  std::set<std::string> cases_;
};

using Providers = std::map<std::string, Measured>;

Providers read_transfers(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
  try {
    const Json all = Json::parse(file);
    if (all.at("schema") != "pinion-bench-1" || all.at("bench") != "transfers")
      throw UsageError(fmt::format("{}: not of `pinion bench transfers --json`", path));
    Providers providers;
    for (const Json& row : all.at("rows"))
      providers[row.at("provider").get<std::string>()].add(
          row.at("case").get<std::string>(), row.at("subject").get<std::string>(),
          row.at("metric").get<std::string>(), row.at("value").get<double>());
    return providers;
  } catch (const Json::exception&) {
    throw UsageError(fmt::format("{}: damaged, or not of `pinion bench transfers --json`", path));
  }
}

std::optional<double> percent_saved(std::optional<double> ratio) {
  return ratio ? std::optional(saved(*ratio, 1)) : std::nullopt;
}
std::optional<double> percent_longer(std::optional<double> ratio) {
  return ratio ? std::optional(longer(*ratio, 1)) : std::nullopt;
}

void add_latencies(std::vector<Row>& rows, const Measured& measured, const std::string& prefix) {
  for (const auto& [_, size] : measured.sizes(prefix))
    for (const char* subject : {"helper", "on-demand", "pipeline", "pipeline-pinned", "bounce", "prepared"}) {
      const auto ratio = measured.ratio(prefix + '-' + size, subject, "leave-pinned", kLatency);
      if (ratio)
        rows.push_back({fmt::format("{}: {} over leave-pinned, a message", size, subject),
                        "%",
                        {},
                        percent_longer(ratio)});
    }
}

std::vector<Row> rows_of_figure_2(const Measured& measured) {
  const auto over_pinned = [&](const char* of) {
    return percent_longer(measured.ratio("reuse-5M", of, "leave-pinned", kLatency));
  };
  const auto peak = [&](const char* of) {
    const auto bytes = measured.value("reuse-5M", of, kPeak);
    return bytes ? std::optional(*bytes / (1 << 20)) : std::nullopt;
  };
  return {{"communication takes longer without leave-pinned", "%", 25.83, over_pinned("on-demand")},
          {"the same, under the helper", "%", {}, over_pinned("helper")},
          {"peak under leave-pinned", "MiB", {}, peak("leave-pinned")},
          {"peak without leave-pinned", "MiB", {}, peak("on-demand")},
          {"peak under the helper", "MiB", {}, peak("helper")}};
}

std::vector<Row> rows_of_figure_9(const Measured& measured) {
  const auto less = [&](const char* over, const char* metric) {
    return percent_saved(measured.ratio("reuse-4M", "helper", over, metric));
  };
  std::vector<Row> rows = {
      {"helper against leave-pinned: peak saved", "%", 24.75, less("leave-pinned", kPeak)},
      {"helper against leave-pinned: mean saved", "%", {}, less("leave-pinned", kMean)},
      {"helper against pipeline, not pinned: peak saved", "%", 3.84, less("pipeline", kPeak)},
      {"helper against pipeline, pinned: peak saved", "%", 21.04, less("pipeline-pinned", kPeak)},
  };
  add_latencies(rows, measured, "reuse");
  return rows;
}

std::vector<Row> rows_of_figure_10(const Measured& measured) {
  const auto over_helper = [&](const char* of) { return measured.ratio("no-reuse-4M", of, "helper", kPeak); };
  std::vector<Row> rows = {
      {"peak of leave-pinned over helper's", "times", 4.62, over_helper("leave-pinned")},
      {"peak of pipeline, pinned, over helper's", "times", 3.31, over_helper("pipeline-pinned")},
      {"peak of pipeline, not pinned, over helper's", "times", 1.0384, over_helper("pipeline")},
  };
  add_latencies(rows, measured, "no-reuse");
  return rows;
}

/// The paper's original has the MPI library's cache; ours registers everything beforehand and looks nothing
/// up.
std::vector<Row> rows_of_overhead(const Measured& measured) {
  std::vector<Row> rows;
  for (const auto& [size, paper] : {std::pair{"17K", 14.02}, std::pair{"1M", 4.58}, std::pair{"4M", 1.22}})
    rows.push_back({fmt::format("{}: helper over everything registered, a message", size), "%", paper,
                    percent_longer(measured.ratio(fmt::format("reuse-{}", size), "helper",
                                                  "everything-registered", kLatency))});
  return rows;
}

/// `rows_of` each provider in the file.
PaperResult of_providers(PaperResult result, const std::string& path,
                         std::vector<Row> (*rows_of)(const Measured&)) {
  // MPI libraries have a transport of their own, and no rows here.
  std::map<std::string, std::vector<Row>> of;
  for (const auto& [provider, measured] : read_transfers(path)) {
    std::vector<Row> rows = rows_of(measured);
    if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.ours.has_value(); }))
      of.emplace(provider, std::move(rows));
  }
  for (auto& [provider, rows] : of)
    for (Row& row : rows) {
      if (of.size() > 1) row.what = fmt::format("{}, {}", provider, row.what);
      result.rows.push_back(std::move(row));
    }
  if (of.empty())
    throw UsageError(fmt::format("{}: has no rows for it; try `pinion bench transfers --json --full`", path));
  result.kind = "Measured";
  if (of.size() == 1) result.how += fmt::format(", provider {}", of.begin()->first);
  return result;
}

}  // namespace

PaperResult measured_figure(int number, const std::string& path) {
  if (number == 2)
    return of_providers({"Figure 2",
                         "Registered memory and communication time of traditional schemes, 5 MB messages",
                         "`pinion bench transfers --size 5M`, bytes of the sender",
                         {}},
                        path, rows_of_figure_2);
  if (number == 9)
    return of_providers({"Figure 9",
                         "Buffer reuse: registered memory with 4 MB messages, and message latency",
                         "`pinion bench transfers`, bytes of the sender",
                         {}},
                        path, rows_of_figure_9);
  if (number == 10)
    return of_providers({"Figure 10",
                         "No buffer reuse: registered memory with 4 MB messages, and message latency",
                         "`pinion bench transfers`, bytes of the sender",
                         {}},
                        path, rows_of_figure_10);
  throw UsageError(fmt::format(
      "--from: figure {} is not of transfers; valid: --figure 2, --figure 9, --figure 10, --section 4.3",
      number));
}

PaperResult measured_section(const std::string& number, const std::string& path) {
  if (number != "4.3") throw UsageError(fmt::format("section {} has no figures here; valid: 4.3", number));
  return of_providers({"Section 4.3",
                       "Overhead of a transfer's bookkeeping on its critical path",
                       "`pinion bench transfers`",
                       {}},
                      path, rows_of_overhead);
}

}  // namespace pinion::cli
