#include "cli/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/report/gpu_copies.h"
#include "cli/report/report_notes.h"
#include "cli/report/report_tables.h"
#include "cli/text.h"
#include "lease/acts.h"

namespace pinion::cli {

namespace {

using runlog::Report;

std::string section(const std::string& title) { return fmt::format("\n{}\n", strong(title)); }

/// A name and its value, which continues below itself.
std::string line(const std::string& name, const std::string& value) {
  constexpr std::size_t kNameWidth = 22;
  const std::string text = wrapped(value, std::string(kNameWidth, ' '));
  return fmt::format("  {:<20}{}", name, text.empty() ? "\n" : text.substr(kNameWidth));
}

std::string run_section(const Report& r, const LibrariesPart* held) {
  std::string out = section("Run");
  for (const Figure& figure : run_figures(r, held)) out += line(figure.name, figure.value);
  return out;
}

std::string registered_section(const Report& r) {
  return section(registered_title(r)) + registered_table(r).text(2) + wrapped(kRegisteredMeaning, "  ");
}

std::string transfers_section(const Report& r) {
  std::string out = section("Transfers");
  for (const Figure& figure : transfer_figures(r))
    out += fmt::format("  {:<16}{:>12}  {:>8}{}{}\n", figure.name, figure.value, figure.share,
                       figure.meaning.empty() ? "" : "  ", figure.meaning);
  return out + fmt::format("  {}\n", device_calls_text(r));
}

std::string prediction_section(const Report& r) {
  if (r.prediction.reuses == 0) return section("Prediction of the next use") + "  no region was used twice\n";
  return section(prediction_title(r)) + prediction_table(r.prediction).text(2) + "  " + kPredictionMeaning +
         "\n";
}

std::string time_section(const Report& r) {
  std::string out = section(kTimeTitle);
  for (const Figure& figure : time_figures(r))
    out += fmt::format("  {:<34}{:>10}{}\n", figure.name, figure.value,
                       figure.meaning.empty() ? "" : "  " + figure.meaning);
  return out;
}

std::string copies_section(const Report& r) {
  if (!r.copies.any()) return {};
  return section(kCopiesTitle) + gpu_copies_table(r.copies).text(2);
}

std::string domains_section(const Report& r) {
  const std::vector<std::string> descriptions = domain_descriptions(r);
  if (descriptions.empty()) return {};
  std::string out = section("Domains, sums over their ranks") + domains_table(r).text(2);
  for (const std::string& description : descriptions) out += wrapped(description, "  ");
  return out;
}

std::string call_sites_section(const Report& r, const SiteText& site_text) {
  if (!r.call_sites_known()) return section("Call sites") + "  not available: their events are missing\n";
  if (r.call_sites.empty()) return {};
  std::string out = section(call_sites_title(r));
  for (std::size_t i = 0; i < sites_shown(r); ++i)
    out +=
        wrapped(site_text(r.call_sites[i]), "  ") + wrapped(call_site_figures(r, r.call_sites[i]), "      ");
  return out;
}

constexpr const char* kSummary = "pinion: ";

/// Lines about memory that is pinned unseen, and about missing data.
std::string notes_text(const Report& r) {
  std::string out;
  const auto note = [&](const std::string& text) { out += wrapped(text, kSummary); };
  if (const std::string text = unseen_text(r); !text.empty()) note(text);
  if (const std::string text = lost_events_text(r); !text.empty())
    note(fmt::format("{}: oracle and leave-pinned {}", text, covered_text(r)));
  if (const std::string text = stopped_text(r); !text.empty()) note(text);
  if (const std::string text = unfinished_text(r); !text.empty()) note(text);
  if (const std::string missing = missing_ranks_text(r); !missing.empty())
    note(missing +
         " left no log here: a rank that cannot write one prints why. Otherwise: is Pinion on their nodes, "
         "and --log a directory that all nodes share? Logs of each node can be gathered for `pinion report`");
  return out;
}

std::string measured_summary(const Report& r, const Strategies* strategies) {
  const runlog::RegisteredBytes& b = r.registered();
  std::string out = fmt::format("pinion: {}, {}", plural_text(r.per_rank.size(), "rank", "ranks"),
                                seconds_text(r.wall_seconds));
  if (r.acquires.total != 0)
    out +=
        fmt::format(": {} from and to {} of memory", plural_text(r.acquires.total, "transfer", "transfers"),
                    bytes_text(static_cast<double>(b.leave_pinned_peak)));
  if (strategies == nullptr) return out + "\n";
  return out + "; memory and time of each strategy,\n" + strategies_text(*strategies, r, "pinion: ");
}

std::string acted_summary(const Report& r) {
  const runlog::RegisteredBytes& b = r.registered();
  const runlog::Acquires& a = r.acquires;
  const auto pair = [](std::uint64_t peak, double mean, bool known = true) {
    if (!known) return std::string(kNotKnown);
    return fmt::format("{} at most, {} on average", bytes_text(static_cast<double>(peak)), bytes_text(mean));
  };
  std::string out =
      wrapped(fmt::format("{}, {}, retention {}; {}", plural_text(r.per_rank.size(), "rank", "ranks"),
                          seconds_text(r.wall_seconds), retention_text(r), r.device),
              kSummary);
  out += fmt::format("{}registered: {}\n", kSummary, pair(b.peak, b.mean));
  out += fmt::format("{}the least possible (oracle): {}\n", kSummary,
                     pair(b.oracle_peak, b.oracle_mean, b.bounds_known));
  out += fmt::format("{}everything left registered (leave-pinned): {}\n", kSummary,
                     pair(b.leave_pinned_peak, b.leave_pinned_mean, b.bounds_known));
  if (r.kernel_pinned_peak_bytes > b.peak)
    out += wrapped("kernel's count: " + kernel_count_text(r), kSummary);
  out += fmt::format("{}{}: {}, {}, {} ({} of these late), {} bounced\n", kSummary,
                     plural_text(a.total, "transfer", "transfers"), plural_text(a.hits, "hit", "hits"),
                     plural_text(a.waits, "wait", "waits"), plural_text(a.misses, "miss", "misses"),
                     count_text(a.late), count_text(a.bounced));
  if (r.copies.any()) out += wrapped(gpu_copies_text(r.copies), kSummary);
  out += wrapped(
      fmt::format("time added to leave-pinned's: {} ({}); registration by transfers took {}, of which "
                  "leave-pinned takes {}",
                  seconds_text(std::max(0.0, r.cost.added())), percent_text(std::max(0.0, r.share_added())),
                  seconds_text(r.cost.registration()), seconds_text(r.cost.leave_pinned)),
      kSummary);
  if (const std::string text = kept_all_text(r.kept_all_below_bytes); !text.empty())
    out += wrapped(text, kSummary);
  else if (acts(r))
    out += fmt::format("{}spent of the time budget: {}\n", kSummary, spent_text(r.budget));
  if (const std::string text = beyond_text(r); !text.empty())
    out += wrapped("the program's own registrations exceeded the limit " + text, kSummary);
  if (const std::string text = passed_text(r.passed); !text.empty() && unseen_text(r).empty())
    out += wrapped("passed on to libibverbs: " + text, kSummary);
  if (r.acts == runlog::Acts::pinned && has_rank(r)) out += fmt::format("pinion: {}\n", kBesideMpi);
  return out;
}

}  // namespace

std::string summary_text(const Report& r, const Strategies* strategies, const Verdict& verdict) {
  return (is_measured(r) ? measured_summary(r, strategies) : acted_summary(r)) + notes_text(r) +
         to_text(verdict, "pinion: ");
}

std::string report_text(const Report& r, const Strategies* strategies, const LibrariesPart* held,
                        const Verdict& verdict, const SiteText& site_text) {
  std::string out = fmt::format("Pinion report: {}\n", r.command) + to_text(verdict, "  ");
  out += run_section(r, held) + registered_section(r);
  if (strategies)
    out += section("What each strategy would hold and cost") + strategies_text(*strategies, r, "  ") +
           what_if_text(*strategies, "  ");
  return out + transfers_section(r) + copies_section(r) + prediction_section(r) + time_section(r) +
         domains_section(r) + call_sites_section(r, site_text) + section("Ranks") + ranks_table(r).text(2);
}

}  // namespace pinion::cli
