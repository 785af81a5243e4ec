#include "cli/report/events.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <unordered_map>

#include "base/call_kind.h"
#include "cli/report/report_json.h"

namespace pinion::cli {

namespace {

using runlog::Event;
using runlog::EventKind;
using runlog::Log;

// Threads have the log's numbers from 1 on; the helper has this one.
constexpr int kHelperThread = 1000000;

const char* outcome_text(runlog::Outcome outcome) {
  static const char* const names[] = {"hit", "wait", "miss", "bounced", "observed"};
  return names[static_cast<int>(outcome)];
}

const char* protocol_text(runlog::Protocol protocol) {
  static const char* const names[] = {"bounce", "rendezvous", "pipeline", "prepared", "direct"};
  return names[static_cast<int>(protocol)];
}

struct NamedEvent {
  const char *kind, *name;
};

NamedEvent named_event(const Event& e) {
  switch (e.kind) {
    case EventKind::registration:
      return {"registration", "register"};
    case EventKind::deregistration:
      return {"registration", "deregister"};
    case EventKind::memory_event:
      return {"registration", "memory event"};
    case EventKind::hold_begin:
      return {"hold", "hold begins"};
    case EventKind::hold_end:
      return {"hold", "hold ends"};
    case EventKind::lease:
    case EventKind::uses:
      return {"lease", to_string(static_cast<CallKind>(e.call))};
    case EventKind::transfer:
      return {"transfer", to_string(static_cast<CallKind>(e.call))};
    case EventKind::none:
      break;
  }
  return {"registration", "none"};
}

bool lasts(const Event& e) {
  return runlog::uses_of(e) > 0 || e.kind == EventKind::transfer || e.kind == EventKind::registration ||
         e.kind == EventKind::deregistration;
}

/// The numbers of processes: in order of rank, from 1 on.
class ProcessNumbers {
 public:
  explicit ProcessNumbers(const runlog::Report& report) {
    for (const runlog::RankReport& r : report.per_rank) numbers_[{r.rank, r.host, r.process}] = 0;
    int last = 0;
    for (auto& [process, number] : numbers_) number = ++last;
  }
  /// A process that began its log after the report was made comes last.
  int of(const Log& log) {
    const auto [found, is_new] =
        numbers_.try_emplace({log.header.rank, log.header.host, log.header.process}, 0);
    if (is_new) found->second = static_cast<int>(numbers_.size());
    return found->second;
  }

 private:
  std::map<std::tuple<std::int32_t, std::string, std::uint32_t>, int> numbers_;
};

class Writer {
 public:
  Writer(std::FILE* out, Time origin, const SiteText& site_text)
      : out_(out), origin_(origin), site_text_(site_text) {}

  void write(const Log& log, int process) {
    put(described(log, process));
    sites_.clear();
    for (const runlog::SiteEntry& site : log.sites) sites_[site.hash] = site_text_(call_site_of(log, site));
    for (const Event& event : log.events) put(described(event, process));
  }

 private:
  void put(const Json& json) { fmt::print(out_, "{}\n", line(json)); }
  double microseconds(Time time) const { return static_cast<double>(time - origin_) * 1e-3; }

  Json levels(const runlog::Timeline& timeline) const {
    Json levels = Json::array();
    for (const auto& [time, bytes] : timeline.levels()) levels.push_back({microseconds(time), bytes});
    return levels;
  }

  Json described(const Log& log, int process) const {
    const auto& header = log.header;
    const std::string name =
        header.rank >= 0 ? fmt::format("rank {}", header.rank) : fmt::format("process {}", header.process);
    Json counters = {{"registered bytes", levels(runlog::registered_timeline(log))}};
    if (log.all_events()) {
      counters["leave-pinned bytes"] = levels(runlog::leave_pinned_timeline(log));
      counters["oracle bytes"] = levels(runlog::oracle_timeline(log));
    }
    if (header.limit_bytes != 0)
      counters["limit bytes"] = {{microseconds(header.start_ns), header.limit_bytes}};
    return {{"process", process},
            {"name", fmt::format("{} on {}", name, header.host)},
            {"events_missing", log.live.counters.events_dropped + log.live.counters.records_dropped},
            {"helper_thread", kHelperThread},
            {"counters", std::move(counters)}};
  }

  Json described(const Event& e, int process) const {
    const auto [kind, name] = named_event(e);
    Json json = {{"process", process},
                 {"thread", e.flags & runlog::kByHelper ? kHelperThread : e.thread + 1},
                 {"kind", kind},
                 {"name", name},
                 {"begin_us", microseconds(e.begin_ns)},
                 {"address", fmt::format("{:#x}", e.address)},
                 {"bytes", e.bytes}};
    if (lasts(e)) json["end_us"] = microseconds(e.end_ns);
    if (e.kind != EventKind::memory_event) json["domain"] = e.domain;  // that is of all
    if (runlog::uses_of(e) > 0) json["outcome"] = outcome_text(e.outcome);
    if (e.kind == EventKind::lease) {
      json["wait_us"] = static_cast<double>(e.wait_ns) * 1e-3;
      if (e.flags & runlog::kLate) json["late"] = true;
    }
    if (e.kind == EventKind::uses) {
      json["uses"] = e.count;
      json["leased_us"] = static_cast<double>(e.leased_ns) * 1e-3;
    }
    if (e.kind == EventKind::transfer) json["protocol"] = protocol_text(e.protocol);
    if (e.peer >= 0) json["peer"] = e.peer;
    if (const auto site = sites_.find(e.site); site != sites_.end()) json["site"] = site->second;
    return json;
  }

  std::FILE* const out_;
  const Time origin_;
  const SiteText& site_text_;
  std::unordered_map<std::uint64_t, std::string> sites_;  ///< of the log that is being written
};

}  // namespace

Error write_events(std::FILE* out, const runlog::Report& report, const std::vector<std::string>& paths,
                   const SiteText& site_text) {
  Writer writer(out, report.start, site_text);
  ProcessNumbers numbers(report);
  return runlog::for_each_log(paths, [&](const Log& log) { writer.write(log, numbers.of(log)); });
}

}  // namespace pinion::cli
