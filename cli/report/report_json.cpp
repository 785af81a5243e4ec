#include "cli/report/report_json.h"

#include <algorithm>
#include <cmath>

#include "cli/report/gpu_copies.h"
#include "lease/engine_options.h"

namespace pinion::cli {

namespace {

std::uint64_t whole(double bytes) { return static_cast<std::uint64_t>(std::llround(bytes)); }

Json to_json(const runlog::RankReport& r) {
  return {{"rank", r.rank},
          {"host", r.host},
          {"process", r.process},
          {"acts", to_string(r.acts)},
          {"complete", r.complete},
          {"stopped_after_seconds", r.stopped_after_seconds},
          {"running", r.running},
          {"wall_seconds", r.wall_seconds},
          {"seconds_added", r.cost.added()},
          {"registered_bytes", cli::to_json(r.registered)},
          {"registered_now_bytes", r.registered_now_bytes},
          {"acquires", cli::to_json(r.acquires)},
          {"registrations", r.registrations},
          {"deregistrations", r.deregistrations},
          {"registration_failures", r.registration_failures},
          {"critical_path_seconds", cli::to_json(r.cost)},
          {"prediction", cli::to_json(r.prediction)},
          {"time_budget", cli::to_json(r.budget)},
          {"helper_share", helper_share_json(r.budget)},
          {"beyond_limits", cli::to_json(r.beyond)},
          {"released_under_pressure", cli::to_json(r.under_pressure)},
          {"held_by_peers", cli::to_json(r.holds)},
          {"passed_on", cli::to_json(r.passed)},
          {"helpers_hugepages", cli::to_json(r.hugepages)},
          {"exposed_byte_seconds", r.keys.exposed_byte_seconds},
          {"strict_keys_seconds", r.keys.strict_seconds},
          {"helper_cpu_seconds", r.cost.helper_cpu},
          {"pinned_at_exit_bytes", r.pinned_at_exit_bytes},
          {"kernel_pinned_peak_bytes", r.kernel_pinned_peak_bytes},
          {"events", r.events},
          {"events_dropped", r.events_dropped}};
}

Json to_json(const runlog::CallSite& s) {
  return {{"name", s.name},
          {"python", s.python},
          {"call", s.call},
          {"acquires", s.acquires},
          {"bytes", s.bytes},
          {"hits", s.hits},
          {"waits", s.waits},
          {"misses", s.misses},
          {"late", s.late},
          {"bounced", s.bounced},
          {"wait_seconds", s.wait_seconds},
          {"held_byte_seconds", s.held_byte_seconds}};
}

Json to_json(const runlog::DomainReport& d) {
  return {{"number", d.number},
          {"device", d.device},
          {"nic", d.nic},
          {"description", d.description},
          {"ranks", d.ranks},
          {"caps",
           {{"max_regions", d.max_regions},
            {"max_region_bytes", d.max_region_bytes},
            {"max_bytes", d.max_bytes}}},
          {"registered_bytes", {{"peak", d.peak}, {"mean", whole(d.mean)}}},
          {"acquires",
           {{"total", d.acquires.total},
            {"hits", d.acquires.hits},
            {"waits", d.acquires.waits},
            {"misses", d.acquires.misses},
            {"bounced", d.acquires.bounced},
            {"observed", d.acquires.observed}}},
          {"registrations", d.registrations},
          {"deregistrations", d.deregistrations},
          {"registration_failures", d.registration_failures},
          {"cost",
           {{"register_ns_per_page", d.register_ns_per_page},
            {"register_ns_base", d.register_ns_base},
            {"deregister_ns_per_page", d.deregister_ns_per_page},
            {"deregister_ns_base", d.deregister_ns_base}}}};
}

Json to_json(const runlog::NodeReport& n) {
  return {{"host", n.host},
          {"ranks", n.ranks},
          {"wall_seconds", n.wall_seconds},
          {"registered_bytes", cli::to_json(n.registered)}};
}

Json to_json(const runlog::Timeline::Bins& bins) {
  return bins.peak.empty() ? Json(nullptr) : Json{{"peak", bins.peak}, {"mean", bins.mean}};
}

void add_series(Json& to, const runlog::MemorySeries& series) {
  to["registered"] = to_json(series.registered);
  to["oracle"] = to_json(series.oracle);
  to["leave_pinned"] = to_json(series.leave_pinned);
}

/// Registered bytes over time.
Json series_json(const runlog::Report& r) {
  const Options options = recorded_options(r.options);
  const auto limit = [](std::uint64_t bytes) { return bytes ? Json(bytes) : Json(nullptr); };
  Json nodes = Json::array(), ranks = Json::array();
  for (const runlog::NodeReport& node : r.nodes)
    add_series(nodes.emplace_back(Json{{"host", node.host}}), node.series);
  for (const runlog::RankReport& rank : r.per_rank)
    add_series(ranks.emplace_back(Json{{"rank", rank.rank}, {"host", rank.host}, {"process", rank.process}}),
               rank.series);
  return {{"bin_seconds", static_cast<double>(r.series_bin) * 1e-9},
          {"limit_bytes", limit(r.limit_bytes)},
          {"node_limit_bytes", limit(options.node_limit)},
          {"nodes", std::move(nodes)},
          {"per_rank", std::move(ranks)}};
}

template <class T>
Json list(const std::vector<T>& items) {
  Json out = Json::array();
  for (const T& item : items) out.push_back(to_json(item));
  return out;
}

/// Indented, but a list of numbers on one line: series have hundreds.
void write(std::string& out, const Json& json, std::size_t indent) {
  const bool of_numbers = json.is_array() && std::all_of(json.begin(), json.end(),
                                                         [](const Json& item) { return item.is_number(); });
  if (!json.is_structured() || json.empty() || of_numbers) {
    out += line(json);
    return;
  }
  out += json.is_object() ? "{" : "[";
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    out += (first ? "\n" : ",\n") + std::string(indent + 2, ' ');
    if (json.is_object()) out += line(Json(key)) + ": ";
    write(out, value, indent + 2);
    first = false;
  }
  out += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

}  // namespace

Json to_json(const runlog::RegisteredBytes& b) {
  const auto bound = [&](std::uint64_t bytes) { return b.bounds_known ? Json(bytes) : Json(nullptr); };
  return {{"peak", b.peak},
          {"mean", whole(b.mean)},
          {"oracle_peak", bound(b.oracle_peak)},
          {"oracle_mean", bound(whole(b.oracle_mean))},
          {"leave_pinned_peak", bound(b.leave_pinned_peak)},
          {"leave_pinned_mean", bound(whole(b.leave_pinned_mean))}};
}

Json to_json(const runlog::Acquires& a) {
  return {{"total", a.total}, {"hits", a.hits},       {"waits", a.waits},      {"misses", a.misses},
          {"late", a.late},   {"bounced", a.bounced}, {"observed", a.observed}};
}

Json to_json(const runlog::Cost& c) {
  return {{"registration", c.registration()},
          {"bookkeeping", c.bookkeeping},
          {"on_demand", c.on_demand},
          {"waits", c.waits},
          {"bounce", c.bounce},
          {"helper_charged", c.helper_charged},
          {"leave_pinned", c.leave_pinned},
          {"preempted", c.preempted}};
}

Json to_json(const runlog::Prediction& p) {
  return {{"reuses", p.reuses},
          {"within_0_5_percent", p.within_0_5},
          {"within_5_percent", p.within_5},
          {"late", p.late},
          {"at_release",
           {{"within_0_5_percent", p.at_release_within_0_5}, {"within_5_percent", p.at_release_within_5}}}};
}

Json to_json(const runlog::TimeBudgetUse& b) {
  return {{"allowed_seconds", b.allowed},       {"spent_seconds", b.spent()},
          {"on_threads_seconds", b.on_threads}, {"by_helper_seconds", b.by_helper},
          {"preempted_seconds", b.preempted},   {"refused", b.refused}};
}

Json helper_share_json(const runlog::TimeBudgetUse& b) {
  return {{"allowed_seconds", b.allowed}, {"spent_seconds", b.by_helper}};
}

Json to_json(const runlog::BeyondLimits& b) {
  return {{"bytes", b.bytes}, {"regions", b.regions}, {"seconds", b.seconds}};
}

Json to_json(const runlog::PassedOn& passed) {
  constexpr const char* kNames[runlog::kPassedReasons] = {"keys", "device", "kind", "room"};
  Json json;
  for (unsigned why = 0; why < runlog::kPassedReasons; ++why)
    json[kNames[why]] = {{"count", passed.by[why].count}, {"bytes", passed.by[why].bytes}};
  return json;
}

Json to_json(const runlog::HelpersHugepages& hugepages) {
  constexpr const char* kNames[kCollapseRefusals] = {"absent", "shared",    "in_use",
                                                     "memory", "forbidden", "not_now"};
  Json refused;
  for (unsigned why = 0; why < kCollapseRefusals; ++why) refused[kNames[why]] = hugepages.refused_bytes[why];
  return {{"advised_bytes", hugepages.advised},
          {"bytes", hugepages.bytes},
          {"refused_bytes", refused},
          {"cpu_seconds", hugepages.cpu_seconds},
          {"longest_seconds", hugepages.longest_seconds}};
}

Json to_json(const runlog::PressureReleases& releases) {
  return {{"bytes", releases.bytes}, {"times", releases.times}};
}

Json to_json(const runlog::PeerHolds& h) {
  return {{"count", h.count}, {"bytes", {{"peak", h.peak}, {"mean", h.mean}}}};
}

Json to_json(const runlog::Report& r, const Json& strategies, const LibrariesPart* held) {
  return {
      {"schema", "pinion-report-1"},
      {"command", r.command},
      {"host", r.nodes.front().host},
      {"version", r.version},
      {"ranks", r.ranks},
      {"job_ranks", r.job_ranks},
      {"acts", to_string(r.acts)},
      {"retention", r.retention},
      {"predictor", r.predictor},
      {"options", r.options},
      {"device", r.device},
      {"limit_bytes", r.limit_bytes},
      {"wall_seconds", r.wall_seconds},
      {"seconds_added", r.cost.added()},
      {"registered_bytes", to_json(r.registered())},
      {"series", series_json(r)},
      {"strategies", strategies},
      {"acquires", to_json(r.acquires)},
      {"registrations", r.registrations},
      {"deregistrations", r.deregistrations},
      {"registration_failures", r.registration_failures},
      {"critical_path_seconds", to_json(r.cost)},
      {"prediction", to_json(r.prediction)},
      {"time_budget", to_json(r.budget)},
      {"helper_share", helper_share_json(r.budget)},
      {"kept_all_below_bytes", r.kept_all_below_bytes},
      {"beyond_limits", to_json(r.beyond)},
      {"released_under_pressure", to_json(r.under_pressure)},
      {"held_by_libraries",
       held ? Json{{"bytes", held->sum_bytes}, {"regions", held->sum_regions}} : Json(nullptr)},
      {"held_by_peers", to_json(r.holds)},
      {"gpu_copies", r.copies.any() ? to_json(r.copies) : Json(nullptr)},
      {"passed_on", to_json(r.passed)},
      {"helpers_hugepages", to_json(r.hugepages)},
      {"exposed_byte_seconds", r.keys.exposed_byte_seconds},
      {"strict_keys_seconds", r.keys.strict_seconds},
      {"helper_cpu_seconds", r.cost.helper_cpu},
      {"pinned_at_exit_bytes", r.pinned_at_exit_bytes},
      {"kernel_pinned_peak_bytes", r.kernel_pinned_peak_bytes},
      {"events",
       {{"recorded", r.events}, {"dropped", r.events_dropped}, {"cover_seconds", r.events_cover_seconds}}},
      {"domains", list(r.domains)},
      {"nodes", list(r.nodes)},
      {"per_rank", list(r.per_rank)},
      {"call_sites", r.call_sites_known() ? list(r.call_sites) : Json(nullptr)}};
}

std::string line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string dump(const Json& json) {
  std::string out;
  write(out, json, 0);
  return out + "\n";
}

}  // namespace pinion::cli
