#include "trace.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/call_kind.h"
#include "report_json.h"
#include "runlog/analysis.h"

namespace pinion::cli {

namespace {

using runlog::Event;
using runlog::EventKind;
using runlog::Log;

// Threads of a rank in the trace: its own, numbered from 1 as the log does, and one for the helper.
constexpr int kHelperThread = 1000000;

const char* outcome_text(runlog::Outcome outcome) {
  static const char* const names[] = {"hit", "wait", "miss", "bounced", "observed"};
  return names[static_cast<int>(outcome)];
}

std::uint64_t lost_events(const Log& log) {
  return log.live.counters.events_dropped + log.live.counters.records_dropped;
}

class Writer {
 public:
  Writer(std::FILE* out, Time origin) : out_(out), origin_(origin) {
    fmt::print(out_, "{{\"traceEvents\":[");
  }
  /// `lost`: events of all logs that are missing.
  void end(std::uint64_t lost) { fmt::print(out_, "\n],\"otherData\":{{\"events missing\":{}}}}}\n", lost); }

  void add(const Json& event) {
    fmt::print(out_, "{}\n{}", first_ ? "" : ",", event.dump(-1, ' ', false, Json::error_handler_t::replace));
    first_ = false;
  }
  double microseconds(Time time) const { return static_cast<double>(time - origin_) * 1e-3; }

 private:
  std::FILE* out_;
  Time origin_;
  bool first_ = true;
};

void write_rank(Writer& writer, const Log& log, int process) {
  const std::string name = log.header.rank >= 0 ? fmt::format("rank {}", log.header.rank)
                                                : fmt::format("process {}", log.header.process);
  writer.add({{"ph", "M"},
              {"name", "process_name"},
              {"pid", process},
              {"args", {{"name", fmt::format("{} on {}", name, log.header.host)}}}});
  writer.add({{"ph", "M"},
              {"name", "thread_name"},
              {"pid", process},
              {"tid", kHelperThread},
              {"args", {{"name", "helper"}}}});
  if (const std::uint64_t lost = lost_events(log))
    writer.add({{"ph", "M"},
                {"name", "process_labels"},
                {"pid", process},
                {"args", {{"labels", fmt::format("{} events are missing", lost)}}}});
  std::unordered_map<std::uint64_t, const char*> sites;
  for (const runlog::SiteEntry& site : log.sites) sites[site.hash] = site.name;

  std::uint64_t id = 0;
  for (const Event& e : log.events) {
    Json event = {{"pid", process},
                  {"tid", e.flags & runlog::kByHelper ? kHelperThread : e.thread + 1},
                  {"ts", writer.microseconds(e.begin_ns)}};
    Json args = {{"address", fmt::format("{:#x}", e.address)}, {"bytes", e.bytes}};
    if (e.kind == EventKind::lease) {
      // Leases of nonblocking operations overlap on one thread: spans of their own, not nested ones.
      const auto site = sites.find(e.site);
      args["outcome"] = outcome_text(e.outcome);
      args["wait_us"] = static_cast<double>(e.wait_ns) * 1e-3;
      if (e.peer >= 0) args["peer"] = e.peer;
      if (site != sites.end()) args["site"] = site->second;
      event["cat"] = "lease";
      event["id"] = fmt::format("{}.{}", process, ++id);  // ids are of the whole trace
      event["name"] = to_string(static_cast<CallKind>(e.call));
      Json end = event;
      event["ph"] = "b";
      event["args"] = std::move(args);
      end["ph"] = "e";
      end["ts"] = writer.microseconds(e.end_ns);
      writer.add(event);
      writer.add(end);
      continue;
    }
    event["name"] = e.kind == EventKind::registration     ? "register"
                    : e.kind == EventKind::deregistration ? "deregister"
                                                          : "memory event";
    event["cat"] = "registration";
    event["ph"] = e.kind == EventKind::memory_event ? "i" : "X";
    if (e.kind == EventKind::memory_event) {
      event["s"] = "t";
    } else {
      event["dur"] = static_cast<double>(e.end_ns - e.begin_ns) * 1e-3;
    }
    event["args"] = std::move(args);
    writer.add(event);
  }
  for (const auto& [time, bytes] : runlog::registered_timeline(log).levels())
    writer.add({{"ph", "C"},
                {"name", "registered bytes"},
                {"pid", process},
                {"ts", writer.microseconds(time)},
                {"args", {{"bytes", bytes}}}});
}

}  // namespace

Error write_trace(std::FILE* out, Time origin, const std::vector<std::string>& paths) {
  Writer writer(out, origin);
  int process = 0;
  std::uint64_t lost = 0;
  const Error error = runlog::for_each_log(paths, [&](const Log& log) {
    write_rank(writer, log, process++);
    lost += lost_events(log);
  });
  writer.end(lost);
  return error;
}

}  // namespace pinion::cli
