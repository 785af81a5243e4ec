#include "report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/acts.h"
#include "report_notes.h"
#include "text.h"

namespace pinion::cli {

namespace {

using runlog::Report;

constexpr std::size_t kSitesShown = 10;

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

std::string change_text(double value, double reference) {
  return reference > 0 ? fmt::format("{:+.1f} %", (value / reference - 1) * 100) : "-";
}

std::string section(const std::string& title) { return fmt::format("\n{}\n", strong(title)); }

/// A name and its value, which continues below itself.
std::string line(const char* name, const std::string& value) {
  constexpr std::size_t kNameWidth = 22;
  const std::string text = wrapped(value, std::string(kNameWidth, ' '));
  return fmt::format("  {:<20}{}", name, text.empty() ? "\n" : text.substr(kNameWidth));
}

std::string run_section(const Report& r, const LibrariesPart* held) {
  std::string out = section("Run");
  out +=
      line("ran as", fmt::format("{} on {}, {}", plural_text(r.per_rank.size(), "rank", "ranks"),
                                 plural_text(r.nodes.size(), "node", "nodes"), seconds_text(r.wall_seconds)));
  out += line("Pinion's part", acts_text(r));
  out += line("retention", retention_text(r));
  out +=
      line("limit", r.limit_bytes ? bytes_text(static_cast<double>(r.limit_bytes)) + " a process" : "none");
  if (const std::string text = beyond_text(r); !text.empty())
    out += line("beyond the limit", text + ": the program's own registrations");
  if (held && held->sum_regions)
    out += line("held by libraries", fmt::format("{} in {} throughout, such as pools and windows",
                                                 bytes_text(static_cast<double>(held->sum_bytes)),
                                                 plural_text(held->sum_regions, "region", "regions")));
  if (const runlog::PeerHolds& peers = r.holds; peers.count)
    out += line("held by peers",
                fmt::format("up to {}, {} in the mean, in {}", bytes_text(static_cast<double>(peers.peak)),
                            bytes_text(peers.mean), plural_text(peers.count, "hold", "holds")));
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
  Table table({"", "peak", "mean", "peak against leave-pinned", "mean against leave-pinned"});
  const auto row = [&](const char* name, std::uint64_t peak, double mean, bool known = true) {
    if (!known) return table.add({name, kNotKnown, kNotKnown, "-", "-"});
    table.add({name, bytes_text(static_cast<double>(peak)), bytes_text(mean),
               change_text(static_cast<double>(peak), static_cast<double>(b.leave_pinned_peak)),
               change_text(mean, b.leave_pinned_mean)});
  };
  row("this run", b.peak, b.mean);
  row("oracle", b.oracle_peak, b.oracle_mean, b.bounds_known);
  row("leave-pinned", b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known);
  return section(fmt::format("Registered memory of node {}, sum over its {}", r.nodes.front().host,
                             plural_text(r.nodes.front().ranks, "rank", "ranks"))) +
         table.text(2) +
         wrapped(
             "Leave-pinned keeps everything registered; oracle holds only the memory under transfer, the "
             "least "
             "possible. Both are computed from this run's transfers.",
             "  ");
}

std::string transfers_section(const Report& r) {
  const runlog::Acquires& a = r.acquires;
  const auto row = [&](const char* name, std::uint64_t n, const char* meaning) {
    const std::string share =
        a.total ? percent_text(static_cast<double>(n) / static_cast<double>(a.total)) : std::string("-");
    return fmt::format("  {:<16}{:>12}  {:>8}  {}\n", name, count_text(n), share, meaning);
  };
  std::string out = section("Transfers") + row("all", a.total, "");
  out += row("hits", a.hits, "found their memory registered");
  out += row("waits", a.waits, "waited for a registration under way");
  out += row("misses", a.misses, "registered their memory themselves");
  out += row("late", a.late, "waits and misses of memory that was used before");
  if (a.bounced) out += row("bounced", a.bounced, "found no room: not registered, a copy is charged");
  if (a.observed) out += row("observed", a.observed, "recorded, without a registration");
  out += fmt::format("  {}, {}", plural_text(r.registrations, "registration", "registrations"),
                     plural_text(r.deregistrations, "deregistration", "deregistrations"));
  if (r.registration_failures)
    out += fmt::format(", {} refused", plural_text(r.registration_failures, "registration", "registrations"));
  return out + "\n";
}

std::string prediction_section(const Report& r) {
  const runlog::Prediction& p = r.prediction;
  if (p.reuses == 0) return section("Prediction of the next use") + "  no region was used twice\n";
  Table table({"predicted", "within 0.5 %", "within 5 %"});
  table.add({"at the last moment to act", percent_text(p.within_0_5), percent_text(p.within_5)});
  table.add({"right after the use before", percent_text(p.at_release_within_0_5),
             percent_text(p.at_release_within_5)});
  return section(fmt::format("Prediction of the next use, {}", plural_text(p.reuses, "reuse", "reuses"))) +
         table.text(2) + "  Errors are shares of the time between two uses.\n";
}

std::string time_section(const Report& r) {
  const runlog::Cost& c = r.cost;
  const auto row = [&](const char* name, double seconds, const std::string& note = {}) {
    return fmt::format("  {:<34}{:>10}{}\n", name, seconds_text(seconds), note.empty() ? "" : "  " + note);
  };
  const std::string per_acquire =
      r.acquires.total
          ? fmt::format("{:.0f} ns a transfer", c.bookkeeping * static_cast<double>(r.per_rank.size()) /
                                                    static_cast<double>(r.acquires.total) * 1e9)
          : "";
  std::string out = section("Time lost to registration, mean over ranks");
  out += row("registration by transfers", c.on_demand);
  out += row("waits for registration", c.waits);
  if (c.preempted > 0)
    out += row("  of both, preempted", c.preempted, "the kernel ran something else meanwhile");
  if (c.bounce > 0) out += row("copies instead of registration", c.bounce, "modelled");
  out += row("bookkeeping", c.bookkeeping, per_acquire);
  out += row("helper, where no core is idle", c.helper_charged,
             fmt::format("its CPU {}, and ranks that wait", seconds_text(c.helper_cpu)));
  out += row("less leave-pinned's registration", -c.leave_pinned);
  out += row("seconds added", c.added(), percent_text(r.share_added()) + " of the run");
  if (!acts(r)) return out;
  out += row("time budget", r.budget.spent, spent_text(r.budget) + " spent on the program's threads");
  out += row("helper's share", r.helper_share.spent, spent_text(r.helper_share) + " spent by the helper");
  if (r.budget.refused)
    out += fmt::format("  {} a region stayed for want of time budget\n",
                       plural_text(r.budget.refused, "time", "times"));
  return out;
}

// Of runs that used more than one: otherwise the figures of all are those of the domain.
std::string domains_section(const Report& r) {
  std::vector<runlog::DomainReport> used = r.domains;
  std::erase_if(used, [](const auto& d) { return d.acquires.total == 0 && d.registrations == 0; });
  if (used.size() < 2) return {};
  Table table({"domain", "ranks", "peak", "mean", "transfers", "hits", "misses", "bounced", "registrations"});
  std::string what;
  for (const runlog::DomainReport& d : used) {
    table.add({fmt::format("{}: {}", d.number, d.device), count_text(d.ranks),
               bytes_text(static_cast<double>(d.peak)), bytes_text(d.mean), count_text(d.acquires.total),
               count_text(d.acquires.hits), count_text(d.acquires.misses), count_text(d.acquires.bounced),
               count_text(d.registrations)});
    what += wrapped(fmt::format("{}: {}", d.number, d.description), "  ");
  }
  return section("Domains, sums over their ranks") + table.text(2) + what;
}

std::string call_site_text(const Report& r, const runlog::CallSite& s, const SiteText& site_text) {
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
  return wrapped(site_text(s), "  ") + wrapped(text, "      ");
}

std::string call_sites_section(const Report& r, const SiteText& site_text) {
  if (!r.call_sites_known()) return section("Call sites") + "  not available: their events are missing\n";
  if (r.call_sites.empty()) return {};
  const std::size_t shown = std::min(kSitesShown, r.call_sites.size());
  std::string out =
      section(shown < r.call_sites.size() ? fmt::format("Call sites, the {} of {} that lost most time", shown,
                                                        count_text(r.call_sites.size()))
                                          : std::string("Call sites"));
  for (std::size_t i = 0; i < shown; ++i) out += call_site_text(r, r.call_sites[i], site_text);
  return out;
}

std::string ranks_section(const Report& r) {
  Table table({"rank", "host", "peak", "mean", "transfers", "misses", "late", "bounced", "seconds added"});
  for (const runlog::RankReport& rank : r.per_rank)
    table.add({rank.rank >= 0 ? std::to_string(rank.rank) : fmt::format("pid {}", rank.process), rank.host,
               bytes_text(static_cast<double>(rank.registered.peak)), bytes_text(rank.registered.mean),
               count_text(rank.acquires.total), count_text(rank.acquires.misses),
               count_text(rank.acquires.late), count_text(rank.acquires.bounced),
               seconds_text(rank.cost.added())});
  return section("Ranks") + table.text(2);
}

constexpr const char* kSummary = "pinion: ";

/// Lines about memory that is pinned unseen, and about missing data.
std::string notes_text(const Report& r) {
  std::string out;
  const auto note = [&](const std::string& text) { out += wrapped(text, kSummary); };
  if (const std::string text = unseen_text(r); !text.empty()) note(text);
  if (const std::string text = lost_events_text(r); !text.empty())
    note(fmt::format("{}: oracle and leave-pinned {}", text, covered_text(r)));
  if (const std::string text = unfinished_text(r); !text.empty()) note(text);
  if (const std::string missing = missing_ranks_text(r); !missing.empty())
    note(missing +
         " left no log here: a rank that cannot write one prints why. Otherwise: is Pinion on their nodes, "
         "and --log a directory that all nodes share? Logs of each node can be gathered for `pinion report`");
  return out;
}

std::string measured_summary(const Report& r, const Strategies* strategies) {
  const runlog::RegisteredBytes& b = r.registered();
  std::string out = fmt::format("pinion: {}, {}, {}\n", plural_text(r.per_rank.size(), "rank", "ranks"),
                                seconds_text(r.wall_seconds), kMeasuredOnly);
  out += fmt::format("pinion: {} of {} seen", plural_text(r.acquires.total, "transfer", "transfers"),
                     bytes_text(static_cast<double>(b.leave_pinned_peak)));
  if (strategies == nullptr || r.acquires.total == 0) return out + "\n";
  return out + "; memory and time of each strategy:\n" + strategies_text(*strategies, "pinion:   ");
}

std::string acted_summary(const Report& r) {
  const runlog::RegisteredBytes& b = r.registered();
  const runlog::Acquires& a = r.acquires;
  const auto pair = [](std::uint64_t peak, double mean, bool known = true) {
    if (!known) return std::string(kNotKnown);
    return fmt::format("peak {}, mean {}", bytes_text(static_cast<double>(peak)), bytes_text(mean));
  };
  std::string out =
      wrapped(fmt::format("{}, {}, retention {}; {}", plural_text(r.per_rank.size(), "rank", "ranks"),
                          seconds_text(r.wall_seconds), retention_text(r), r.device),
              kSummary);
  out += fmt::format("{}registered {}\n", kSummary, pair(b.peak, b.mean));
  out += fmt::format("{}(oracle {}; leave-pinned {})\n", kSummary,
                     pair(b.oracle_peak, b.oracle_mean, b.bounds_known),
                     pair(b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known));
  if (r.kernel_pinned_peak_bytes > b.peak)
    out += wrapped("kernel's count: " + kernel_count_text(r), kSummary);
  out += fmt::format("{}{}: {}, {}, {}, {} late, {} bounced\n", kSummary,
                     plural_text(a.total, "acquire", "acquires"), plural_text(a.hits, "hit", "hits"),
                     plural_text(a.waits, "wait", "waits"), plural_text(a.misses, "miss", "misses"),
                     count_text(a.late), count_text(a.bounced));
  out +=
      fmt::format("{}added {} ({})\n", kSummary, seconds_text(r.cost.added()), percent_text(r.share_added()));
  if (acts(r))
    out += fmt::format("pinion: spent {} on threads, {} by the helper\n", spent_text(r.budget),
                       spent_text(r.helper_share));
  if (const std::string text = beyond_text(r); !text.empty())
    out += wrapped("the program's own registrations exceeded the limit " + text, kSummary);
  if (r.acts == runlog::Acts::pinned && has_rank(r)) out += fmt::format("pinion: {}\n", kBesideMpi);
  return out;
}

std::string spent_of(double spent, double allowed) {
  return fmt::format("{} of {}", seconds_text(spent),
                     allowed > 0 ? seconds_text(allowed) : std::string("unbounded time"));
}

}  // namespace

std::string spent_text(const runlog::TimeBudgetUse& threads) {
  return spent_of(threads.spent, threads.allowed);
}
std::string spent_text(const runlog::HelperShareUse& helper) {
  return spent_of(helper.spent, helper.allowed);
}

std::string summary_text(const Report& r, const Strategies* strategies, const Verdict& verdict) {
  return (is_measured(r) ? measured_summary(r, strategies) : acted_summary(r)) + notes_text(r) +
         to_text(verdict, "pinion: ");
}

std::string report_text(const Report& r, const Strategies* strategies, const LibrariesPart* held,
                        const Verdict& verdict, const SiteText& site_text) {
  std::string out = fmt::format("Pinion report: {}\n", r.command) + to_text(verdict, "  ");
  out += run_section(r, held) + registered_section(r);
  if (strategies)
    out += section("What each strategy would hold and cost") + strategies_text(*strategies, "  ") +
           what_if_text(*strategies, "  ");
  return out + transfers_section(r) + prediction_section(r) + time_section(r) + domains_section(r) +
         call_sites_section(r, site_text) + ranks_section(r);
}

}  // namespace pinion::cli
