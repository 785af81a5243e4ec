#include "cli/report/report_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/report/report_notes.h"
#include "lease/acts.h"

namespace pinion::cli {

namespace {

using runlog::Report;

constexpr std::size_t kSitesShown = 10;

/// Pinion's part in the registrations.
std::string acts_text(const Report& r) {
  switch (r.acts) {
    case runlog::Acts::measured:
      return kMeasuredOnly;
    case runlog::Acts::verbs:
      return kBelowLibraries;
    case runlog::Acts::cuda:
      return kGpuCopies;
    case runlog::Acts::pinned:
      break;
  }
  return has_rank(r) ? kBesideMpi : "registered with a device of its own";
}

std::string against_text(double value, double reference) {
  return reference > 0 ? change_text(value, reference, 1) : "-";
}

}  // namespace

bool has_rank(const Report& r) { return !r.per_rank.empty() && r.per_rank.front().rank >= 0; }
bool is_measured(const Report& r) { return r.acts == runlog::Acts::measured; }
bool acts(const Report& r) { return r.retention == to_string(RetentionKind::helper); }

const char* const kTimeTitle = "Time lost to registration, mean over ranks";
const char* const kPredictionMeaning =
    "Errors are shares of the time between two uses. Li et al. (CF'11): 74.89 %, 94.68 %.";
const char* const kRegisteredMeaning =
    "Leave-pinned keeps everything registered; oracle holds only the memory under transfer, the least "
    "possible. Both are computed from this run's transfers.";

std::string spent_text(const runlog::TimeBudgetUse& budget) {
  const std::string spent = seconds_text(budget.spent());
  return spent + (budget.allowed > 0 ? " of " + seconds_text(budget.allowed) : ", unbounded");
}

std::string retention_text(const Report& r) {
  const bool predicts = r.retention == "helper" || r.retention == "observe";
  return predicts ? fmt::format("{} (predictor {})", r.retention, r.predictor) : r.retention;
}

std::vector<Figure> run_figures(const Report& r, const LibrariesPart* held) {
  std::vector<Figure> figures;
  const auto line = [&](const char* name, std::string value) {
    figures.push_back({name, std::move(value), "", ""});
  };
  line("ran as", fmt::format("{} on {}, {}", plural_text(r.per_rank.size(), "rank", "ranks"),
                             plural_text(r.nodes.size(), "node", "nodes"), seconds_text(r.wall_seconds)));
  line("Pinion's part", acts_text(r));
  line("retention", retention_text(r));
  if (const std::string text = kept_all_text(r.kept_all_below_bytes); !text.empty())
    line("minimum gain", text);
  const std::string limit = limit_text(r);
  line("limit", limit.empty() ? "none" : limit);
  if (const std::string text = beyond_text(r); !text.empty())
    line("beyond the limit", text + ": the program's own registrations");
  if (const std::string text = pressure_text(r.under_pressure); !text.empty()) line("memory was short", text);
  if (held && held->sum_regions)
    line("held by libraries", fmt::format("{} in {} throughout, such as pools and windows",
                                          bytes_text(static_cast<double>(held->sum_bytes)),
                                          plural_text(held->sum_regions, "region", "regions")));
  if (const runlog::PeerHolds& peers = r.holds; peers.count)
    line("held by peers",
         fmt::format("up to {}, {} in the mean, in {}", bytes_text(static_cast<double>(peers.peak)),
                     bytes_text(peers.mean), plural_text(peers.count, "hold", "holds")));
  if (const std::string text = passed_text(r.passed); !text.empty()) line("passed on", text);
  if (const std::string text = keys_text(r.keys); !text.empty()) line("keys of peers", text);
  if (const std::string text = hugepages_text(r.hugepages); !text.empty()) line("hugepages", text);
  if (!r.options.empty()) line("options", r.options);
  if (!is_measured(r)) line("device", r.device);
  line("kernel's count", kernel_count_text(r));
  if (const std::string text = unseen_text(r); !text.empty()) line("note", text);
  if (const std::string text = stopped_text(r); !text.empty()) line("note", text);
  line("pinned at exit", bytes_text(static_cast<double>(r.pinned_at_exit_bytes)));
  if (const std::string text = unfinished_text(r); !text.empty())
    line("note", text + "; figures go as far as the log does");
  if (const std::string missing = missing_ranks_text(r); !missing.empty())
    line("note", missing + " left no log here: figures are of the others");
  if (const std::string text = lost_events_text(r); !text.empty())
    line("note", fmt::format("{}: oracle, leave-pinned and call sites {}", text, covered_text(r)));
  return figures;
}

std::vector<Figure> transfer_figures(const Report& r) {
  const runlog::Acquires& a = r.acquires;
  std::vector<Figure> figures;
  const auto row = [&](const char* name, std::uint64_t n, const char* meaning) {
    const std::string share =
        a.total ? percent_text(static_cast<double>(n) / static_cast<double>(a.total)) : std::string("-");
    figures.push_back({name, count_text(n), share, meaning});
  };
  row("all", a.total, "");
  row("hits", a.hits, "found their memory registered");
  row("waits", a.waits, "waited for a registration under way");
  row("misses", a.misses, "registered their memory themselves");
  row("late", a.late, "waits and misses of memory that was used before");
  if (a.bounced) row("bounced", a.bounced, "found no room: not registered, a copy is charged");
  if (a.observed) row("observed", a.observed, "recorded, without a registration");
  return figures;
}

std::string device_calls_text(const Report& r) {
  std::string out = fmt::format("{}, {}", plural_text(r.registrations, "registration", "registrations"),
                                plural_text(r.deregistrations, "deregistration", "deregistrations"));
  if (r.registration_failures)
    out += fmt::format(", {} refused", plural_text(r.registration_failures, "registration", "registrations"));
  return out;
}

std::vector<Figure> time_figures(const Report& r) {
  const runlog::Cost& c = r.cost;
  std::vector<Figure> figures;
  const auto row = [&](const char* name, double seconds, const std::string& note = {}) {
    figures.push_back({name, seconds_text(seconds), "", note});
  };
  const std::string per_acquire =
      r.acquires.total
          ? fmt::format("{:.0f} ns a transfer", c.bookkeeping * static_cast<double>(r.per_rank.size()) /
                                                    static_cast<double>(r.acquires.total) * 1e9)
          : "";
  row("registration by transfers", c.on_demand);
  row("waits for registration", c.waits);
  if (c.preempted > 0) row("  of both, preempted", c.preempted, "the kernel ran something else meanwhile");
  if (c.bounce > 0) row("copies instead of registration", c.bounce, "modelled");
  row("bookkeeping", c.bookkeeping, per_acquire);
  row("helper, where no core is idle", c.helper_charged,
      fmt::format("its CPU {}, and ranks that wait", seconds_text(c.helper_cpu)));
  row("less leave-pinned's registration", -c.leave_pinned);
  row("seconds added", c.added(), percent_text(r.share_added()) + " of the run, beyond leave-pinned's");
  if (!acts(r)) return figures;
  row("spent of the time budget", r.budget.spent(), spent_text(r.budget));
  if (r.budget.refused)
    figures.push_back({"regions kept for want of budget", count_text(r.budget.refused), "", ""});
  return figures;
}

std::string registered_title(const Report& r) {
  return fmt::format("Registered memory of node {}, sum over its {}", r.nodes.front().host,
                     plural_text(r.nodes.front().ranks, "rank", "ranks"));
}

Table registered_table(const Report& r) {
  const runlog::RegisteredBytes& b = r.registered();
  Table table({"", "peak", "mean", "peak against leave-pinned", "mean against leave-pinned"});
  const auto row = [&](const char* name, std::uint64_t peak, double mean, bool known = true) {
    if (!known) return table.add({name, kNotKnown, kNotKnown, "-", "-"});
    table.add({name, bytes_text(static_cast<double>(peak)), bytes_text(mean),
               against_text(static_cast<double>(peak), static_cast<double>(b.leave_pinned_peak)),
               against_text(mean, b.leave_pinned_mean)});
  };
  // Less memory is no merit where transfers were refused.
  if (!is_measured(r) && r.acquires.bounced != 0)
    table.add({"this run", bytes_text(static_cast<double>(b.peak)), bytes_text(b.mean), "-", "-"});
  else if (!is_measured(r))
    row("this run", b.peak, b.mean);
  row("oracle", b.oracle_peak, b.oracle_mean, b.bounds_known);
  row("leave-pinned", b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known);
  return table;
}

std::string prediction_title(const Report& r) {
  return fmt::format("Prediction of the next use, {}", plural_text(r.prediction.reuses, "reuse", "reuses"));
}

Table prediction_table(const runlog::Prediction& p) {
  Table table({"predicted", "within 0.5 %", "within 5 %"});
  table.add({"at the last moment to act", percent_text(p.within_0_5), percent_text(p.within_5)});
  table.add({"right after the use before", percent_text(p.at_release_within_0_5),
             percent_text(p.at_release_within_5)});
  return table;
}

namespace {

std::vector<runlog::DomainReport> used_domains(const Report& r) {
  std::vector<runlog::DomainReport> used = r.domains;
  std::erase_if(used, [](const auto& d) { return d.acquires.total == 0 && d.registrations == 0; });
  // The figures of a single one are those of the run.
  if (used.size() < 2) used.clear();
  return used;
}

}  // namespace

Table domains_table(const Report& r) {
  Table table({"domain", "ranks", "peak", "mean", "transfers", "hits", "misses", "bounced", "registrations"});
  for (const runlog::DomainReport& d : used_domains(r))
    table.add({fmt::format("{}: {}", d.number, d.device), count_text(d.ranks),
               bytes_text(static_cast<double>(d.peak)), bytes_text(d.mean), count_text(d.acquires.total),
               count_text(d.acquires.hits), count_text(d.acquires.misses), count_text(d.acquires.bounced),
               count_text(d.registrations)});
  return table;
}

std::vector<std::string> domain_descriptions(const Report& r) {
  std::vector<std::string> lines;
  for (const runlog::DomainReport& d : used_domains(r))
    lines.push_back(fmt::format("{}: {}", d.number, d.description));
  return lines;
}

Table ranks_table(const Report& r) {
  Table table({"rank", "host", "peak", "mean", "transfers", "misses", "late", "bounced", "seconds added"});
  for (const runlog::RankReport& rank : r.per_rank)
    table.add({rank.rank >= 0 ? std::to_string(rank.rank) : fmt::format("pid {}", rank.process), rank.host,
               bytes_text(static_cast<double>(rank.registered.peak)), bytes_text(rank.registered.mean),
               count_text(rank.acquires.total), count_text(rank.acquires.misses),
               count_text(rank.acquires.late), count_text(rank.acquires.bounced),
               seconds_text(rank.cost.added())});
  return table;
}

std::size_t sites_shown(const Report& r) { return std::min(kSitesShown, r.call_sites.size()); }

std::string call_sites_title(const Report& r) {
  if (sites_shown(r) == r.call_sites.size()) return "Call sites";
  return fmt::format("Call sites, the {} of {} that lost most time", sites_shown(r),
                     count_text(r.call_sites.size()));
}

std::string call_site_figures(const Report& r, const runlog::CallSite& s) {
  std::string text = fmt::format("{}: {} of {}", s.call, plural_text(s.acquires, "transfer", "transfers"),
                                 bytes_text(static_cast<double>(s.bytes)));
  if (s.misses) text += fmt::format(", {}", plural_text(s.misses, "miss", "misses"));
  if (s.waits) text += fmt::format(", {}", plural_text(s.waits, "wait", "waits"));
  if (s.late) text += fmt::format(" ({} late)", count_text(s.late));
  if (s.bounced) text += fmt::format(", {} bounced", count_text(s.bounced));
  text += fmt::format("; {} lost", seconds_text(s.wait_seconds));
  if (s.held_byte_seconds > 0 && r.wall_seconds > 0)
    text +=
        fmt::format("; {} registered after it on average", bytes_text(s.held_byte_seconds / r.wall_seconds));
  return text;
}

}  // namespace pinion::cli
