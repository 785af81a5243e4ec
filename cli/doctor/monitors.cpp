#include "cli/doctor/monitors.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "cli/system_files.h"
#include "monitor/monitor.h"
#include "monitor/own_calls.h"
#include "monitor/userfault.h"

namespace pinion::cli {

namespace {

constexpr MonitorKind kKinds[] = {MonitorKind::libc,        MonitorKind::libc_userfaultfd,
                                  MonitorKind::symbols,     MonitorKind::symbols_userfaultfd,
                                  MonitorKind::userfaultfd, MonitorKind::brackets};

bool takes_symbols(MonitorKind kind) {
  return kind == MonitorKind::symbols || kind == MonitorKind::symbols_userfaultfd;
}

MonitorFinding::Event event_of(const HookStatus& row) {
  switch (row.state) {
    case HookState::good:
    case HookState::chained:
      return {row.name, "seen", ""};
    case HookState::skipped:
      return {row.name, "nothing to see", row.error.message};
    case HookState::unclaimed:
      return {row.name, "never seen", row.error.message};
    case HookState::failed:
      break;
  }
  return {row.name, "not seen", row.error.message};
}

MonitorFinding from_json(const Json& json) {
  MonitorFinding finding;
  finding.name = json.at("name");
  finding.refused = json.at("refused");
  finding.complete = json.at("complete");
  for (const Json& event : json.at("events"))
    finding.events.push_back({event.at("name"), event.at("state"), event.at("why")});
  finding.blind_spots = json.at("never_seen").get<std::vector<std::string>>();
  return finding;
}

}  // namespace

std::string output_of(const CommandLine& command, const Environment& environment) {
  int ends[2];
  if (::pipe(ends) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    ::_exit(execute(command, environment));
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  for (ssize_t bytes; (bytes = ::read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(bytes));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

namespace {

/// In a process that has the symbols before libc's.
MonitorFinding try_preloaded(MonitorKind kind) {
  MonitorFinding finding;
  finding.name = to_string(kind);
  try {
    const char* inherited = std::getenv("LD_PRELOAD");
    const std::string others = inherited && *inherited ? ":" + std::string(inherited) : "";
    const std::string text = output_of({pinion_command(), "doctor", "--monitor", finding.name, "--json"},
                                       {{"LD_PRELOAD", symbols_library() + others}});
    const Json answer = Json::parse(text, nullptr, false);
    if (answer.is_object()) return from_json(answer);
    finding.refused = "it could not be tried: the process that has the symbols preloaded failed";
  } catch (const UsageError& missing) {
    finding.refused = missing.what();
  }
  return finding;
}

}  // namespace

Json to_json(const MonitorFinding& finding) {
  Json events = Json::array();
  for (const auto& event : finding.events)
    events.push_back({{"name", event.name}, {"state", event.state}, {"why", event.why}});
  return {{"name", finding.name},
          {"refused", finding.refused},
          {"complete", finding.complete},
          {"events", std::move(events)},
          {"never_seen", finding.blind_spots}};
}

MonitorFinding try_monitor(MonitorKind kind) {
  MonitorFinding finding;
  finding.name = to_string(kind);
  MemoryMonitor& monitor = monitor_of(kind);
  for (const char* spot : monitor.blind_spots()) finding.blind_spots.emplace_back(spot);
  const HookCallbacks ignore{[](const MemoryChange&) { return Answer::proceed; }, [](Range) {}};
  const HookReport started = monitor.start(ignore);
  const HookReport tested = monitor.self_test();
  monitor.stop();
  finding.complete = tested.complete;
  for (const HookStatus& row : tested.rows) finding.events.push_back(event_of(row));
  if (!started.complete && !tested.complete) finding.refused = started.error.message;
  return finding;
}

std::vector<MonitorFinding> try_all_monitors() {
  std::vector<MonitorFinding> findings;
  for (const MonitorKind kind : kKinds)
    findings.push_back(takes_symbols(kind) ? try_preloaded(kind) : try_monitor(kind));
  return findings;
}

const MonitorFinding& chosen_by_auto(const std::vector<MonitorFinding>& findings) {
  const auto find = [&](MonitorKind kind) -> const MonitorFinding& {
    return *std::find_if(findings.begin(), findings.end(),
                         [&](const MonitorFinding& finding) { return finding.name == to_string(kind); });
  };
  const MonitorFinding& libc = find(MonitorKind::libc);
  if ((libc.complete && !own_calls_found()) || userfaultfd_refused()) return libc;
  // start_monitor() chooses likewise; `pinion run` preloads the symbols where code cannot be patched.
  const MonitorFinding& both =
      find(libc.refused.empty() ? MonitorKind::libc_userfaultfd : MonitorKind::symbols_userfaultfd);
  return both.complete ? both : libc;
}

}  // namespace pinion::cli
