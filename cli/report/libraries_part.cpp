#include "cli/report/libraries_part.h"

#include <algorithm>

#include "base/clock.h"
#include "cli/command.h"
#include "runlog/reader.h"

namespace pinion::cli {

namespace {

void add(LibrariesPart& part, const runlog::Log& log) {
  const auto is_lease = [](const runlog::Event& e) { return e.kind == runlog::EventKind::lease; };
  Time last_acquire = log.header.start_ns;
  for (const runlog::Event& e : log.events)
    if (is_lease(e)) last_acquire = std::max(last_acquire, e.begin_ns);
  const Duration tenth = (log.last_ns() - log.header.start_ns) / 10;
  const std::uint64_t page = log.header.page_bytes;
  std::uint64_t bytes = 0, regions = 0;
  for (const runlog::Event& e : log.events) {
    if (!is_lease(e) || e.end_ns < last_acquire || e.end_ns - e.begin_ns < tenth) continue;
    bytes += (e.address + e.bytes + page - 1) / page * page - e.address / page * page;
    ++regions;
  }
  part.most_bytes = std::max(part.most_bytes, bytes);
  part.most_regions = std::max(part.most_regions, regions);
  part.sum_bytes += bytes;
  part.sum_regions += regions;
  ++part.processes;
}

}  // namespace

LibrariesPart libraries_part(const std::vector<std::string>& logs) {
  LibrariesPart part;
  const Error error = runlog::for_each_log(logs, [&](runlog::Log&& log) { add(part, log); });
  if (error) throw Failure(error.message);
  return part;
}

std::optional<LibrariesPart> held_by_libraries(const runlog::Report& report,
                                               const std::vector<std::string>& logs) {
  const bool all_ranks = std::all_of(report.per_rank.begin(), report.per_rank.end(),
                                     [](const runlog::RankReport& rank) { return rank.rank >= 0; });
  if (report.acts != runlog::Acts::verbs || !all_ranks || !report.all_events()) return std::nullopt;
  return libraries_part(logs);
}

}  // namespace pinion::cli
