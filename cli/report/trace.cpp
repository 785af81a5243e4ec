#include "cli/report/trace.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/call_kind.h"
#include "cli/report/report_json.h"

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

const char* protocol_text(runlog::Protocol protocol) {
  static const char* const names[] = {"bounce", "rendezvous", "pipeline", "prepared", "direct"};
  return names[static_cast<int>(protocol)];
}

const char* name_of(const Event& e) {
  switch (e.kind) {
    case EventKind::registration:
      return "register";
    case EventKind::deregistration:
      return "deregister";
    case EventKind::memory_event:
      return "memory event";
    case EventKind::hold_begin:
      return "hold begins";
    case EventKind::hold_end:
      return "hold ends";
    case EventKind::lease:
    case EventKind::uses:
    case EventKind::transfer:
      return to_string(static_cast<CallKind>(e.call));
    case EventKind::none:
      break;
  }
  return "none";
}

const char* category_of(const Event& e) {
  switch (e.kind) {
    case EventKind::lease:
    case EventKind::uses:
      return "lease";
    case EventKind::hold_begin:
    case EventKind::hold_end:
      return "hold";
    case EventKind::transfer:
      return "transfer";
    default:
      return "registration";
  }
}

// Spans of nonblocking operations overlap on one thread, so they stand side by side.
bool is_span(const Event& e) { return runlog::uses_of(e) > 0 || e.kind == EventKind::transfer; }

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

using SiteNames = std::unordered_map<std::uint64_t, std::string>;

Json arguments_of(const Event& e, const SiteNames& sites) {
  Json args = {{"address", fmt::format("{:#x}", e.address)}, {"bytes", e.bytes}, {"domain", e.domain}};
  if (e.kind == EventKind::memory_event) args.erase("domain");  // of all
  if (runlog::uses_of(e) > 0) args["outcome"] = outcome_text(e.outcome);
  if (e.kind == EventKind::lease) args["wait_us"] = static_cast<double>(e.wait_ns) * 1e-3;
  if (e.kind == EventKind::uses) {
    args["uses"] = e.count;
    args["leased_us"] = static_cast<double>(e.leased_ns) * 1e-3;
  }
  if (e.kind == EventKind::transfer) args["protocol"] = protocol_text(e.protocol);
  if (e.peer >= 0) args["peer"] = e.peer;
  if (const auto site = sites.find(e.site); site != sites.end()) args["site"] = site->second;
  return args;
}

/// The numbers of processes in the trace: in order of rank, from 1 on.
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

void name_process(Writer& writer, const Log& log, int process) {
  const auto add = [&](const char* what, Json args) {
    writer.add({{"ph", "M"}, {"name", what}, {"pid", process}, {"args", std::move(args)}});
  };
  const std::string name = log.header.rank >= 0 ? fmt::format("rank {}", log.header.rank)
                                                : fmt::format("process {}", log.header.process);
  add("process_name", {{"name", fmt::format("{} on {}", name, log.header.host)}});
  add("process_sort_index", {{"sort_index", process}});
  if (const std::uint64_t lost = lost_events(log))
    add("process_labels", {{"labels", fmt::format("{} events are missing", lost)}});
}

void name_threads(Writer& writer, const Log& log, int process) {
  const auto add = [&](int thread, const std::string& name) {
    writer.add({{"ph", "M"},
                {"name", "thread_name"},
                {"pid", process},
                {"tid", thread},
                {"args", {{"name", name}}}});
  };
  std::set<int> threads;
  for (const Event& e : log.events)
    if (!(e.flags & runlog::kByHelper)) threads.insert(e.thread + 1);
  for (const int thread : threads) add(thread, fmt::format("thread {}", thread));
  add(kHelperThread, "helper");
}

void write_counter(Writer& writer, const char* name, int process, const runlog::Timeline& line) {
  for (const auto& [time, bytes] : line.levels())
    writer.add({{"ph", "C"},
                {"name", name},
                {"pid", process},
                {"ts", writer.microseconds(time)},
                {"args", {{"bytes", bytes}}}});
}

void write_counters(Writer& writer, const Log& log, int process) {
  write_counter(writer, "registered bytes", process, runlog::registered_timeline(log));
  if (log.all_events()) {
    write_counter(writer, "leave-pinned bytes", process, runlog::leave_pinned_timeline(log));
    write_counter(writer, "oracle bytes", process, runlog::oracle_timeline(log));
  }
  if (log.header.limit_bytes == 0) return;
  runlog::Timeline limit;
  limit.change(log.header.start_ns, static_cast<std::int64_t>(log.header.limit_bytes));
  write_counter(writer, "limit bytes", process, limit);
}

/// A mark where a transfer began to wait for memory that had been used before.
void mark_late(Writer& writer, const Event& e, Json event) {
  if (e.kind != EventKind::lease || !(e.flags & runlog::kLate)) return;
  event.update({{"ph", "i"}, {"s", "t"}, {"name", "late"}, {"cat", "late"}});
  event["args"] = {{"call", name_of(e)}, {"wait_us", static_cast<double>(e.wait_ns) * 1e-3}};
  writer.add(event);
}

void write_rank(Writer& writer, const Log& log, int process, const SiteText& site_text) {
  name_process(writer, log, process);
  name_threads(writer, log, process);
  SiteNames sites;
  for (const runlog::SiteEntry& site : log.sites) sites[site.hash] = site_text(call_site_of(log, site));
  std::uint64_t id = 0;
  for (const Event& e : log.events) {
    Json event = {{"pid", process},
                  {"tid", e.flags & runlog::kByHelper ? kHelperThread : e.thread + 1},
                  {"ts", writer.microseconds(e.begin_ns)},
                  {"name", name_of(e)},
                  {"cat", category_of(e)}};
    mark_late(writer, e, event);
    if (is_span(e)) {
      event["id"] = fmt::format("{}.{}", process, ++id);  // ids are of the whole trace
      Json end = event;
      event["ph"] = "b";
      event["args"] = arguments_of(e, sites);
      end["ph"] = "e";
      end["ts"] = writer.microseconds(e.end_ns);
      writer.add(event);
      writer.add(end);
      continue;
    }
    if (e.kind == EventKind::registration || e.kind == EventKind::deregistration) {
      event["ph"] = "X";
      event["dur"] = static_cast<double>(e.end_ns - e.begin_ns) * 1e-3;
    } else {
      event["ph"] = "i";
      event["s"] = "t";
    }
    event["args"] = arguments_of(e, sites);
    writer.add(event);
  }
  write_counters(writer, log, process);
}

}  // namespace

Error write_trace(std::FILE* out, const runlog::Report& report, const std::vector<std::string>& paths,
                  const SiteText& site_text) {
  Writer writer(out, report.start);
  ProcessNumbers numbers(report);
  std::uint64_t lost = 0;
  const Error error = runlog::for_each_log(paths, [&](const Log& log) {
    write_rank(writer, log, numbers.of(log), site_text);
    lost += lost_events(log);
  });
  writer.end(lost);
  return error;
}

}  // namespace pinion::cli
