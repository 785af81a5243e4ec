#include "report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "engine/acts.h"
#include "text.h"

namespace pinion::cli {

namespace {

using runlog::Report;

constexpr std::size_t kSitesShown = 10;
constexpr std::size_t kRangesShown = 8;

std::string plural(std::uint64_t n, const char* one, const char* many) {
  return fmt::format("{} {}", count_text(n), n == 1 ? one : many);
}

std::string retention_text(const Report& r) {
  const bool predicts = r.retention == "helper" || r.retention == "observe";
  return predicts ? fmt::format("{} (predictor {})", r.retention, r.predictor) : r.retention;
}

bool is_measured(const Report& r) { return r.acts == runlog::Acts::measured; }

/// Of an MPI program.
bool has_rank(const Report& r) { return !r.per_rank.empty() && r.per_rank.front().rank >= 0; }

/// Pinion's part in the registrations.
std::string acts_text(const Report& r) {
  switch (r.acts) {
    case runlog::Acts::measured:
      return kMeasuredOnly;
    case runlog::Acts::verbs:
      return kBelowLibraries;
    case runlog::Acts::pinned:
      break;
  }
  return has_rank(r) ? kBesideMpi : "registered with a device of its own";
}

bool acts(const Report& r) { return r.retention == to_string(RetentionKind::helper); }

std::string against(double value, double reference) {
  return reference > 0 ? fmt::format("{:+.1f} %", (value / reference - 1) * 100) : "-";
}

std::string section(const std::string& title) { return fmt::format("\n{}\n", title); }

std::string line(const char* name, const std::string& value) {
  return fmt::format("  {:<20}{}\n", name, value);
}

// "2 ranks did not end in order", "3 ranks have not ended: their job still writes to its log"; empty where
// all have.
std::string unfinished_text(const Report& r) {
  std::uint64_t running = 0, broken_off = 0;
  for (const runlog::RankReport& rank : r.per_rank) {
    running += rank.running;
    broken_off += !rank.complete && !rank.running;
  }
  std::string text;
  if (running)
    text = plural(running, "rank has", "ranks have") + " not ended: the job still writes to its log";
  if (broken_off)
    text += (text.empty() ? "" : "; ") + plural(broken_off, "rank", "ranks") + " did not end in order";
  return text;
}

// "1,234 events are missing (no space left for the log)"; empty where none are.
std::string lost_events_text(const Report& r) {
  if (r.all_events()) return {};
  Options options;
  (void)parse_options(options, r.options);
  const auto is_full = [&](const runlog::RankReport& rank) {
    return (rank.events + 1) * sizeof(runlog::Event) > options.log_size;
  };
  std::set<std::string> why;
  for (const runlog::RankReport& rank : r.per_rank) {
    if (rank.events_dropped > rank.records_dropped)
      why.insert(is_full(rank) ? "more than --log-size" : "no space left where the log is");
    if (rank.records_dropped) why.insert("they came faster than the helper could take them");
  }
  return fmt::format("{} missing ({})", plural(r.events_dropped, "event is", "events are"),
                     fmt::join(why, "; "));
}

// Of which part of the run oracle, leave-pinned and call sites are, where events are missing.
std::string covered_text(const Report& r) {
  return r.registered().bounds_known
             ? fmt::format("are of the first {}", seconds_text(r.events_cover_seconds))
             : "are not available";
}

// "2 ranks of 6 (2, 5)": of the job's ranks, those without a log among the ones that were read; empty where
// all left one. Logs that were left on other nodes are missed this way.
std::string missing_ranks_text(const Report& r) {
  Options options;
  (void)parse_options(options, r.options);
  std::set<std::int32_t> found;
  for (const auto& rank : r.per_rank) found.insert(rank.rank);
  std::uint64_t count = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> ranges;
  for (std::int32_t rank = 0; rank < r.job_ranks; ++rank) {
    if (found.count(rank) || !list_holds(options.only_ranks, rank).value_or(true)) continue;
    ++count;
    if (!ranges.empty() && ranges.back().second == rank - 1)
      ranges.back().second = rank;
    else
      ranges.push_back({rank, rank});
  }
  if (count == 0) return {};
  std::string names;
  for (std::size_t i = 0; i < std::min(kRangesShown, ranges.size()); ++i) {
    const auto& [first, last] = ranges[i];
    names += (i ? ", " : "") + (first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  if (ranges.size() > kRangesShown) names += ", ...";
  return fmt::format("{} of {} ({})", count_text(count),
                     plural(static_cast<std::uint64_t>(r.job_ranks), "rank", "ranks"), names);
}

std::string kernel_count_text(const Report& r) {
  return fmt::format("up to {} pinned or locked (VmPin, VmLck: whole hugepages, shared edge pages twice)",
                     bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)));
}

// "at most 16.0 MiB and 2 regions, for 1.20 s"; empty where the limits held.
std::string beyond_text(const runlog::BeyondLimits& beyond) {
  if (beyond.bytes == 0 && beyond.regions == 0) return {};
  return fmt::format("by at most {} and {}, for {}", bytes_text(static_cast<double>(beyond.bytes)),
                     plural(beyond.regions, "region", "regions"), seconds_text(beyond.seconds));
}

// "12.0 MiB s after their deregistration; strict keys take 0.30 s"; empty where peers had no keys.
std::string keys_text(const runlog::KeyUse& keys) {
  if (keys.exposed_byte_seconds <= 0 && keys.strict_seconds <= 0) return {};
  return fmt::format("{} times seconds reachable beyond the program's registrations; strict keys take {}",
                     bytes_text(keys.exposed_byte_seconds), seconds_text(keys.strict_seconds));
}

// Where memory is pinned, and no registration reached the verbs front; else empty.
std::string unseen_text(const Report& r) {
  Options options;
  (void)parse_options(options, r.options);
  constexpr std::uint64_t kOthers = std::uint64_t{1} << 20;  // a program may lock some pages itself
  const bool reached = r.acts != runlog::Acts::measured && (r.acquires.total != 0 || r.registrations != 0);
  if (!may_act_below(options) || r.acts == runlog::Acts::pinned || reached ||
      r.kernel_pinned_peak_bytes < kOthers)
    return {};
  return fmt::format(
      "the kernel counts {} pinned or locked, and no registration reached the verbs front. Where a NIC pins "
      "it, "
      "the program has a libibverbs inside, or calls the driver itself (devx): then its library's own cache "
      "serves it better (UCX_RCACHE_ENABLE=y, FI_MR_CACHE_MAX_COUNT=1024)",
      bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)));
}

std::string summary_section(const Report& r, const LibrariesPart* held) {
  std::string out = fmt::format("Pinion report: {}\n", r.command);
  out += line("ran as", fmt::format("{} on {}, {}", plural(r.per_rank.size(), "rank", "ranks"),
                                    plural(r.nodes.size(), "node", "nodes"), seconds_text(r.wall_seconds)));
  out += line("acts", acts_text(r));
  out += line("retention", retention_text(r));
  out +=
      line("limit", r.limit_bytes ? bytes_text(static_cast<double>(r.limit_bytes)) + " a process" : "none");
  if (const std::string text = beyond_text(r.beyond); !text.empty())
    out += line("beyond the limit", text + ": the program's own registrations");
  if (held && held->sum_regions)
    out += line("held by libraries", fmt::format("{} in {} throughout, such as pools and windows",
                                                 bytes_text(static_cast<double>(held->sum_bytes)),
                                                 plural(held->sum_regions, "region", "regions")));
  if (const std::string text = keys_text(r.keys); !text.empty()) out += line("keys of peers", text);
  if (!r.options.empty()) out += line("options", r.options);
  out += line("device", r.device);
  out += line("kernel's count", kernel_count_text(r));
  if (const std::string text = unseen_text(r); !text.empty()) out += line("note", text);
  out += line("pinned at exit", bytes_text(static_cast<double>(r.pinned_at_exit_bytes)));
  if (const std::string text = unfinished_text(r); !text.empty())
    out += line("note", text + "; figures go as far as the log does");
  if (const std::string missing = missing_ranks_text(r); !missing.empty())
    out += line("note", missing + " left no log here: figures are of the others");
  if (const std::string text = lost_events_text(r); !text.empty())
    out += line("note", fmt::format("{}: oracle, leave-pinned and call sites {}", text, covered_text(r)));
  return out;
}

std::string registered_section(const Report& r) {
  const runlog::RegisteredBytes& b = r.registered();
  Table table({"", "peak", "mean", "peak to leave-pinned", "mean to leave-pinned"});
  const auto row = [&](const char* name, std::uint64_t peak, double mean, bool known = true) {
    if (!known) return table.add({name, kNotKnown, kNotKnown, "-", "-"});
    table.add({name, bytes_text(static_cast<double>(peak)), bytes_text(mean),
               against(static_cast<double>(peak), static_cast<double>(b.leave_pinned_peak)),
               against(mean, b.leave_pinned_mean)});
  };
  row("this run", b.peak, b.mean);
  row("oracle", b.oracle_peak, b.oracle_mean, b.bounds_known);
  row("leave-pinned", b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known);
  return section(fmt::format("Registered memory of node {}, sum over its {}", r.nodes.front().host,
                             plural(r.nodes.front().ranks, "rank", "ranks"))) +
         table.text(2) + "  Oracle and leave-pinned are computed from this run's transfers.\n";
}

std::string acquires_section(const Report& r) {
  const runlog::Acquires& a = r.acquires;
  const auto with_share = [&](std::uint64_t n) {
    return a.total ? fmt::format("{} ({})", count_text(n),
                                 percent_text(static_cast<double>(n) / static_cast<double>(a.total)))
                   : count_text(n);
  };
  std::string out = section("Acquires") + line("total", count_text(a.total)) +
                    line("hits", with_share(a.hits)) + line("waits", with_share(a.waits)) +
                    line("misses", with_share(a.misses)) +
                    line("late", with_share(a.late) + ": waits and misses of regions used before");
  if (a.bounced) out += line("bounced", with_share(a.bounced) + "; a copy is charged");
  if (a.observed) out += line("observed only", with_share(a.observed));
  out += line("registrations", count_text(r.registrations));
  out += line("deregistrations", count_text(r.deregistrations));
  if (r.registration_failures)
    out += line("refused", plural(r.registration_failures, "registration", "registrations"));
  return out;
}

std::string prediction_section(const Report& r) {
  const runlog::Prediction& p = r.prediction;
  if (p.reuses == 0) return section("Prediction") + "  no region was used twice\n";
  Table table({"error, of the reuse interval", "within 0.5 %", "within 5 %"});
  table.add({"at the last moment", percent_text(p.within_0_5), percent_text(p.within_5)});
  table.add({"at release", percent_text(p.at_release_within_0_5), percent_text(p.at_release_within_5)});
  return section("Prediction") + line("reuses", count_text(p.reuses)) + line("late", count_text(p.late)) +
         table.text(2);
}

std::string critical_path_section(const Report& r) {
  const runlog::Cost& c = r.cost;
  const auto row = [&](const char* name, double seconds, const std::string& note = {}) {
    return fmt::format("  {:<34}{:>10}{}\n", name, seconds_text(seconds), note.empty() ? "" : "  " + note);
  };
  const std::string per_acquire =
      r.acquires.total
          ? fmt::format("{:.0f} ns an acquire", c.bookkeeping * static_cast<double>(r.per_rank.size()) /
                                                    static_cast<double>(r.acquires.total) * 1e9)
          : "";
  std::string out = section("Critical path, mean over ranks");
  out += row("registration on demand", c.on_demand);
  out += row("waits for registration", c.waits);
  if (c.preempted > 0)
    out += row("  of both, preempted", c.preempted, "the kernel ran something else meanwhile");
  if (c.bounce > 0) out += row("copies instead of registration", c.bounce, "modelled");
  out += row("bookkeeping", c.bookkeeping, per_acquire);
  out += row(
      "helper, no core idle", c.helper_charged,
      fmt::format("its CPU {}; with ranks that wait, and modelled device time", seconds_text(c.helper_cpu)));
  out += row("less leave-pinned's registration", -c.leave_pinned);
  out += row("seconds added", c.added(), percent_text(r.share_added()) + " of the run");
  if (acts(r)) {
    out += "  spent " + bounds_text(r.budget, r.helper_share) + "\n";
    out += fmt::format("  {} kept for want of time budget\n",
                       plural(r.budget.refused, "time a region was", "times a region was"));
  }
  return out;
}

// Of runs that used more than one: otherwise the figures of all are those of the domain.
std::string domains_section(const Report& r) {
  std::vector<runlog::DomainReport> used = r.domains;
  std::erase_if(used, [](const auto& d) { return d.acquires.total == 0 && d.registrations == 0; });
  if (used.size() < 2) return {};
  Table table({"domain", "ranks", "peak", "mean", "acquires", "hits", "misses", "bounced", "registrations"});
  std::string what;
  for (const runlog::DomainReport& d : used) {
    table.add({fmt::format("{}: {}", d.number, d.device), count_text(d.ranks),
               bytes_text(static_cast<double>(d.peak)), bytes_text(d.mean), count_text(d.acquires.total),
               count_text(d.acquires.hits), count_text(d.acquires.misses), count_text(d.acquires.bounced),
               count_text(d.registrations)});
    what += fmt::format("  {}: {}\n", d.number, d.description);
  }
  return section("Domains, sums over their ranks") + table.text(2) + what;
}

std::string call_sites_section(const Report& r) {
  if (!r.call_sites_known()) return section("Call sites") + "  not available: their events are missing\n";
  if (r.call_sites.empty()) return {};
  Table table({"call site", "call", "acquires", "bytes", "hits", "waits", "misses", "late", "time lost"});
  for (std::size_t i = 0; i < std::min(kSitesShown, r.call_sites.size()); ++i) {
    const runlog::CallSite& s = r.call_sites[i];
    constexpr std::size_t widest = 60;
    const std::string name = s.name.size() > widest ? s.name.substr(0, widest - 3) + "..." : s.name;
    table.add({name, s.call, count_text(s.acquires), bytes_text(static_cast<double>(s.bytes)),
               count_text(s.hits), count_text(s.waits), count_text(s.misses), count_text(s.late),
               seconds_text(s.wait_seconds)});
  }
  const std::string title =
      r.call_sites.size() > kSitesShown
          ? fmt::format("Call sites, the {} of {} that lost most time", kSitesShown, r.call_sites.size())
          : "Call sites";
  return section(title) + table.text(2);
}

std::string ranks_section(const Report& r) {
  Table table({"rank", "host", "peak", "mean", "acquires", "misses", "late", "bounced", "seconds added"});
  for (const runlog::RankReport& rank : r.per_rank)
    table.add({rank.rank >= 0 ? std::to_string(rank.rank) : fmt::format("pid {}", rank.process), rank.host,
               bytes_text(static_cast<double>(rank.registered.peak)), bytes_text(rank.registered.mean),
               count_text(rank.acquires.total), count_text(rank.acquires.misses),
               count_text(rank.acquires.late), count_text(rank.acquires.bounced),
               seconds_text(rank.cost.added())});
  return section("Ranks") + table.text(2);
}

/// Lines about memory that is pinned unseen, and about missing data.
std::string notes_text(const Report& r) {
  std::string out;
  if (const std::string text = unseen_text(r); !text.empty()) out += fmt::format("pinion: {}\n", text);
  if (const std::string text = lost_events_text(r); !text.empty())
    out += fmt::format("pinion: {}: oracle and leave-pinned {}\n", text, covered_text(r));
  if (const std::string text = unfinished_text(r); !text.empty()) out += fmt::format("pinion: {}\n", text);
  if (const std::string missing = missing_ranks_text(r); !missing.empty())
    out += fmt::format(
        "pinion: {} left no log here: a rank that cannot write one prints why. Otherwise: is Pinion on their "
        "nodes, and --log a directory that all nodes share? Logs of each node can be gathered for "
        "`pinion report`\n",
        missing);
  return out;
}

std::string measured_summary(const Report& r, const Strategies* strategies) {
  const runlog::RegisteredBytes& b = r.registered();
  std::string out = fmt::format("pinion: {}, {}, {}\n", plural(r.per_rank.size(), "rank", "ranks"),
                                seconds_text(r.wall_seconds), kMeasuredOnly);
  out += fmt::format("pinion: {} of {} seen", plural(r.acquires.total, "transfer", "transfers"),
                     bytes_text(static_cast<double>(b.leave_pinned_peak)));
  if (strategies == nullptr || r.acquires.total == 0) return out + "\n";
  return out + "; memory and time of each strategy:\n" + strategies_text(*strategies, "pinion:   ");
}

}  // namespace

std::string bounds_text(const runlog::TimeBudgetUse& threads, const runlog::HelperShareUse& helper) {
  const auto of = [](double allowed) {
    return allowed > 0 ? " of " + seconds_text(allowed) : std::string(", not bounded,");
  };
  return fmt::format("{}{} on threads + {}{} by the helper = {}", seconds_text(threads.spent),
                     of(threads.allowed), seconds_text(helper.spent), of(helper.allowed),
                     seconds_text(threads.spent + helper.spent));
}

std::string summary_text(const Report& r, const Strategies* strategies) {
  const runlog::RegisteredBytes& b = r.registered();
  const runlog::Acquires& a = r.acquires;
  if (is_measured(r)) return measured_summary(r, strategies) + notes_text(r);
  const auto pair = [](std::uint64_t peak, double mean, bool known = true) {
    if (!known) return std::string(kNotKnown);
    return fmt::format("peak {}, mean {}", bytes_text(static_cast<double>(peak)), bytes_text(mean));
  };
  std::string out =
      fmt::format("pinion: {}, {}, retention {}; {}\n", plural(r.per_rank.size(), "rank", "ranks"),
                  seconds_text(r.wall_seconds), retention_text(r), r.device);
  out += fmt::format("pinion: registered {} (oracle {}; leave-pinned {})\n", pair(b.peak, b.mean),
                     pair(b.oracle_peak, b.oracle_mean, b.bounds_known),
                     pair(b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known));
  if (r.kernel_pinned_peak_bytes > b.peak)
    out += fmt::format("pinion: kernel's count: {}\n", kernel_count_text(r));
  out += fmt::format(
      "pinion: {} acquires: {} hits, {} waits, {} misses, {} late, {} bounced; added {} ({})\n",
      count_text(a.total), count_text(a.hits), count_text(a.waits), count_text(a.misses), count_text(a.late),
      count_text(a.bounced), seconds_text(r.cost.added()), percent_text(r.share_added()));
  if (acts(r)) out += fmt::format("pinion: spent {}\n", bounds_text(r.budget, r.helper_share));
  if (const std::string text = beyond_text(r.beyond); !text.empty())
    out += fmt::format("pinion: the program's own registrations exceeded the limit {}\n", text);
  if (r.acts == runlog::Acts::pinned && has_rank(r)) out += fmt::format("pinion: {}\n", kBesideMpi);
  return out + notes_text(r);
}

std::string report_text(const Report& r, const Strategies* strategies, const LibrariesPart* held) {
  std::string simulated;
  if (strategies)
    simulated = section("What each strategy would hold and cost") + strategies_text(*strategies, "  ");
  return summary_section(r, held) + registered_section(r) + simulated + acquires_section(r) +
         prediction_section(r) + critical_path_section(r) + domains_section(r) + call_sites_section(r) +
         ranks_section(r);
}

}  // namespace pinion::cli
