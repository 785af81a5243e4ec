#include "cli/report/arena.h"

#include <fmt/format.h>

#include "cli/report/hugepages.h"
#include "cli/text.h"

namespace pinion::cli {

ArenaFigures arena_of(const std::vector<std::string>& logs) {
  ArenaFigures sum;
  for (const std::string& directory : directories_of(logs)) sum.add(read_arena_figures(directory));
  return sum;
}

std::string arena_text(const ArenaFigures& f) {
  if (f.processes == 0) return {};
  const auto text = [](std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  return fmt::format(
      "{} with an arena: {} of {} requests there served, {} in all; at most {} in {} segments; segments "
      "registered {} times ({} before a request), refused {}, doomed by memory changes {}, let go under a "
      "limit {}",
      plural_text(f.processes, "process", "processes"), count_text(f.served), count_text(f.requests),
      text(f.served_bytes), text(f.segment_bytes), count_text(f.segments), count_text(f.registrations),
      count_text(f.ahead), count_text(f.refused), count_text(f.doomed), count_text(f.let_go));
}

Verdict arena_verdict(const runlog::Report& r, const ArenaFigures& f) {
  const runlog::RegisteredBytes& held = r.registered();
  Verdict verdict;
  verdict.sentences = {
      fmt::format("The arena served {} of {}, from segments of {} at most.", count_text(f.served),
                  plural_text(r.acquires.total + f.served, "transfer", "transfers"),
                  bytes_text(static_cast<double>(f.segment_bytes))),
      fmt::format("Registered memory: {} at most, {} on average, for {} of {}.",
                  bytes_text(static_cast<double>(held.peak)), bytes_text(held.mean),
                  seconds_text(r.cost.added()), seconds_text(r.wall_seconds)),
      fmt::format("Oracle, leave-pinned and simulated strategies know the other {} alone.",
                  plural_text(r.acquires.total, "transfer", "transfers"))};
  if (f.ahead != 0 && f.served_bytes < f.segment_bytes)
    verdict.sentences.push_back(
        fmt::format("The arena's transfers moved {}, less than is registered: `--tune preregister-ahead=no` "
                    "registers segments at their first request.",
                    bytes_text(static_cast<double>(f.served_bytes))));
  return verdict;
}

Json to_json(const ArenaFigures& f) {
  if (f.processes == 0) return nullptr;
  return {{"processes", f.processes},
          {"bytes", f.bytes},
          {"segments", f.segments},
          {"segment_bytes", f.segment_bytes},
          {"registrations", f.registrations},
          {"ahead", f.ahead},
          {"refused", f.refused},
          {"doomed", f.doomed},
          {"let_go", f.let_go},
          {"requests", f.requests},
          {"served", f.served},
          {"served_bytes", f.served_bytes},
          {"cleared_bytes", f.cleared_bytes},
          {"withheld_bytes", f.withheld_bytes}};
}

}  // namespace pinion::cli
