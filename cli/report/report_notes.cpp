#include "cli/report/report_notes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "cli/text.h"
#include "lease/acts.h"
#include "lease/engine_options.h"

namespace pinion::cli {

namespace {

using runlog::RankReport;
using runlog::Report;

constexpr std::size_t kRangesShown = 8;
constexpr std::size_t kRanksShown = 4;

/// Ranks with a property: how many, and the first of them by name.
struct RanksWith {
  std::uint64_t count = 0;
  std::string names;
};

template <class F>
RanksWith ranks_with(const Report& r, F&& has) {
  RanksWith found;
  for (const RankReport& rank : r.per_rank) {
    if (!has(rank)) continue;
    if (++found.count <= kRanksShown) found.names += (found.count > 1 ? ", " : "") + rank_text(rank);
  }
  if (found.count > kRanksShown) found.names += ", ...";
  return found;
}

}  // namespace

std::string rank_text(const RankReport& rank) {
  return rank.rank >= 0 ? fmt::format("rank {} on {}", rank.rank, rank.host)
                        : fmt::format("process {} on {}", rank.process, rank.host);
}

std::string unfinished_text(const Report& r) {
  const RanksWith running = ranks_with(r, [](const RankReport& rank) { return rank.running; });
  const RanksWith broken_off =
      ranks_with(r, [](const RankReport& rank) { return !rank.complete && !rank.running; });
  std::string text;
  if (running.count)
    text = fmt::format("{} not ended: the job still writes to its log",
                       plural_text(running.count, "rank has", "ranks have"));
  if (broken_off.count)
    text += fmt::format("{}{} did not end in order ({})", text.empty() ? "" : "; ",
                        plural_text(broken_off.count, "rank", "ranks"), broken_off.names);
  return text;
}

std::string stopped_text(const Report& r) {
  const RanksWith stopped =
      ranks_with(r, [](const RankReport& rank) { return rank.stopped_after_seconds > 0; });
  if (stopped.count == 0) return {};
  double first = r.wall_seconds;
  for (const RankReport& rank : r.per_rank)
    if (rank.stopped_after_seconds > 0) first = std::min(first, rank.stopped_after_seconds);
  return fmt::format(
      "`pinion stop` made Pinion stand aside in {} ({}), {} into the run: from then on registrations ended "
      "with their transfers",
      plural_text(stopped.count, "rank", "ranks"), stopped.names, seconds_text(first));
}

std::string lost_events_text(const Report& r) {
  if (r.all_events()) return {};
  const std::uint64_t log_size = recorded_options(r.options).log_size;
  const auto is_full = [&](const RankReport& rank) {
    return (rank.events + 1) * sizeof(runlog::Event) > log_size;
  };
  std::set<std::string> why;
  for (const RankReport& rank : r.per_rank) {
    if (rank.events_dropped > rank.records_dropped)
      why.insert(is_full(rank) ? "more than log-size" : "no space left where the log is");
    if (rank.records_dropped) why.insert("they came faster than the helper could take them");
  }
  const RanksWith ranks = ranks_with(r, [](const RankReport& rank) { return rank.events_dropped > 0; });
  return fmt::format("{} missing ({}; {})", plural_text(r.events_dropped, "event is", "events are"),
                     fmt::join(why, "; "), ranks.names);
}

std::string covered_text(const Report& r) {
  return r.registered().bounds_known
             ? fmt::format("are of the first {}", seconds_text(r.events_cover_seconds))
             : "are not available";
}

std::string missing_ranks_text(const Report& r) {
  const std::string only = recorded_options(r.options).only_ranks;
  std::set<std::int32_t> found;
  for (const RankReport& rank : r.per_rank) found.insert(rank.rank);
  std::uint64_t count = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> ranges;
  for (std::int32_t rank = 0; rank < r.job_ranks; ++rank) {
    if (found.count(rank) || !list_holds(only, rank).value_or(true)) continue;
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
                     plural_text(static_cast<std::uint64_t>(r.job_ranks), "rank", "ranks"), names);
}

std::string kernel_count_text(const Report& r) {
  return fmt::format("up to {} pinned or locked (VmPin, VmLck: whole hugepages, shared edge pages twice)",
                     bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)));
}

std::string limit_text(const Report& r) {
  const std::uint64_t of_node = recorded_options(r.options).node_limit;
  std::string text;
  if (r.limit_bytes && r.limit_bytes != of_node)
    text = fmt::format("{} a process", bytes_text(static_cast<double>(r.limit_bytes)));
  if (of_node)
    text += fmt::format("{}{} a node", text.empty() ? "" : ", ", bytes_text(static_cast<double>(of_node)));
  return text;
}

std::string beyond_text(const Report& r) {
  const runlog::BeyondLimits& beyond = r.beyond;
  if (beyond.bytes == 0 && beyond.regions == 0) return {};
  const auto most = std::max_element(
      r.per_rank.begin(), r.per_rank.end(),
      [](const RankReport& a, const RankReport& b) { return a.beyond.bytes < b.beyond.bytes; });
  return fmt::format("by at most {} and {}, for {} (most: {})", bytes_text(static_cast<double>(beyond.bytes)),
                     plural_text(beyond.regions, "region", "regions"), seconds_text(beyond.seconds),
                     rank_text(*most));
}

std::string pressure_text(const runlog::PressureReleases& releases) {
  if (releases.times == 0) return {};
  return fmt::format("released {} under memory pressure, {}", bytes_text(static_cast<double>(releases.bytes)),
                     releases.times == 1 ? "once" : count_text(releases.times) + " times");
}

std::string kept_all_text(std::uint64_t below_bytes) {
  if (below_bytes == 0) return {};
  return fmt::format("all stays registered while a process uses less than {} (--minimum-gain)",
                     bytes_text(static_cast<double>(below_bytes)));
}

std::string passed_text(const runlog::PassedOn& passed) {
  constexpr const char* kWhy[runlog::kPassedReasons] = {
      "as their keys end with them (--remote-keys says whose are kept)",
      "of a device or a copy of libibverbs that Pinion cannot use",
      "of kinds that libibverbs alone makes (on demand, for windows, at other addresses)",
      "for which a limit or the device had no room"};
  const auto amount = [](const runlog::Passed& some) {
    return fmt::format("{} of {}", plural_text(some.count, "registration", "registrations"),
                       bytes_text(static_cast<double>(some.bytes)));
  };
  std::vector<std::string> parts;
  for (unsigned why = 0; why < runlog::kPassedReasons; ++why)
    if (passed.by[why].count != 0) parts.push_back(fmt::format("{} {}", amount(passed.by[why]), kWhy[why]));
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string hugepages_text(const runlog::HelpersHugepages& hugepages) {
  if (hugepages.advised + hugepages.bytes + hugepages.refused() == 0) return {};
  constexpr const char* kWhy[kCollapseRefusals] = {
      "not wholly there",
      "of files or shared with a child",
      "in use",
      "for lack of memory",
      "where the kernel forbids it",
      "beside a fork, a userfaultfd, a sandbox or real-time threads"};
  std::vector<std::string> parts;
  for (unsigned why = 0; why < kCollapseRefusals; ++why)
    if (const std::uint64_t bytes = hugepages.refused_bytes[why]; bytes != 0)
      parts.push_back(fmt::format("{} {}", bytes_text(static_cast<double>(bytes)), kWhy[why]));
  const std::string advised = hugepages.advised == 0
                                  ? ""
                                  : fmt::format("{} advised from their first touch on; ",
                                                bytes_text(static_cast<double>(hugepages.advised)));
  return fmt::format("{}{} by the helper, in {} of CPU, {} at most a call{}{}", advised,
                     bytes_text(static_cast<double>(hugepages.bytes)), seconds_text(hugepages.cpu_seconds),
                     seconds_text(hugepages.longest_seconds),
                     parts.empty() ? "" : "; not: ", fmt::join(parts, ", "));
}

std::string keys_text(const runlog::KeyUse& keys) {
  if (keys.exposed_byte_seconds <= 0 && keys.strict_seconds <= 0) return {};
  return fmt::format("{} times seconds reachable beyond the program's registrations; strict keys take {}",
                     bytes_text(keys.exposed_byte_seconds), seconds_text(keys.strict_seconds));
}

std::uint64_t bounced_without_room(const Report& r) {
  if (!r.all_events()) return r.acquires.bounced;
  std::uint64_t logged = 0;
  for (const runlog::CallSite& site : r.call_sites) logged += site.bounced;
  return std::min(logged, r.acquires.bounced);
}

std::string unseen_text(const Report& r) {
  constexpr std::uint64_t kOthers = std::uint64_t{1} << 20;  // a program may lock some pages itself
  const bool reached = r.acts != runlog::Acts::measured && (r.acquires.total != 0 || r.registrations != 0);
  if (!may_act_below(recorded_options(r.options)) || r.acts == runlog::Acts::pinned || reached ||
      r.kernel_pinned_peak_bytes < kOthers)
    return {};
  if (const std::string passed = passed_text(r.passed); !passed.empty())
    return fmt::format(
        "the kernel counts {} pinned or locked: registrations reached the verbs front and went on to "
        "libibverbs: {}",
        bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)), passed);
  if (r.keys.strict_seconds > 0)  // a log of version 9
    return fmt::format(
        "the kernel counts {} pinned or locked: registrations reached the verbs front and went on to "
        "libibverbs "
        "(taking {}), as their keys end with them. --remote-keys says whose are kept",
        bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)), seconds_text(r.keys.strict_seconds));
  return fmt::format(
      "the kernel counts {} pinned or locked, and no registration reached the verbs front. Where a NIC pins "
      "it, "
      "the program has a libibverbs inside, or calls the driver itself (devx): then its library's own cache "
      "serves it better (UCX_RCACHE_ENABLE=y, FI_MR_CACHE_MAX_COUNT=1024)",
      bytes_text(static_cast<double>(r.kernel_pinned_peak_bytes)));
}

}  // namespace pinion::cli
