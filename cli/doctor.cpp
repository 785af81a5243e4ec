// `pinion doctor`: problems on this machine and in this environment, and how to fix them.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "caches_above.h"
#include "command.h"
#include "device/memlock.h"
#include "device/pin.h"
#include "interconnects.h"
#include "launch.h"
#include "monitor/userfault.h"
#include "monitors.h"
#include "other_hooks.h"
#include "own_calls.h"
#include "report_json.h"
#include "system_files.h"
#include "text.h"

namespace pinion::cli {

namespace {

using Check = Finding;

constexpr std::size_t kSmallLimit = 64 << 20;

Check check_memlock() {
  const Memlock m = memlock();
  if (m.limit == SIZE_MAX) return {"memlock", "RLIMIT_MEMLOCK is unlimited", {}};
  const std::string limit = fmt::format("RLIMIT_MEMLOCK is {}", bytes_text(static_cast<double>(m.limit)));
  if (m.exempt) return {"memlock", limit + ", and CAP_IPC_LOCK exempts this process", {}};
  const std::string text = limit +
                           " for all processes of the user together; the kernel counts whole "
                           "hugepages, and pages that buffers share once for each: up to 2 MiB for 4 KiB";
  if (m.limit >= kSmallLimit) return {"memlock", text, {}};
  return {"memlock", text,
          "raise it: `ulimit -l unlimited`, or `* - memlock unlimited` in /etc/security/limits.conf, and in "
          "the batch "
          "system's own limits"};
}

// The least limit from this process's group up to the root; 0 where there is none.
std::uint64_t cgroup_limit() {
  std::istringstream groups(read_text("/proc/self/cgroup"));
  std::uint64_t least = 0;
  for (std::string line; std::getline(groups, line);) {
    const bool unified = line.rfind("0::", 0) == 0;
    if (!unified && line.find(":memory:") == std::string::npos) continue;
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    const char* file = unified ? "/memory.max" : "/memory.limit_in_bytes";
    for (std::string group = line.substr(line.rfind(':') + 1);; group.erase(group.rfind('/'))) {
      const std::uint64_t limit = std::strtoull(read_text(root + group + file).c_str(), nullptr, 10);
      // cgroup v1 writes "no limit" as a number near 2^63.
      if (limit != 0 && limit < (std::uint64_t{1} << 60) && (least == 0 || limit < least)) least = limit;
      if (group.empty() || group.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

Check check_cgroup() {
  const std::uint64_t limit = cgroup_limit();
  if (limit == 0) return {"cgroup", "no memory limit", {}};
  return {"cgroup", fmt::format("memory limit {}", bytes_text(static_cast<double>(limit))),
          "pinned pages count and cannot be swapped: keep --limit times the ranks of the node well below it"};
}

Check check_hugepages() {
  const std::string total = field_of("/proc/meminfo", "HugePages_Total");
  const std::string size = field_of("/proc/meminfo", "Hugepagesize");
  if (total.empty()) return {"hugepages", "not supported by this kernel", {}};
  if (total == "0") return {"hugepages", fmt::format("none of {} are reserved; none are needed", size), {}};
  return {"hugepages",
          fmt::format("{} of {} reserved, {} free", total, size, field_of("/proc/meminfo", "HugePages_Free")),
          {}};
}

Check check_transparent_hugepages() {
  const std::string mode = chosen_word(read_text("/sys/kernel/mm/transparent_hugepage/enabled"));
  if (mode.empty()) return {"transparent hugepages", "not supported by this kernel", {}};
  const std::string text = fmt::format("mode {}", mode);
  if (mode == "always") return {"transparent hugepages", text, {}};
  if (mode == "madvise")
    return {"transparent hugepages", text + ": only for programs that ask",
            "registering 2 MiB pages costs a tenth: `echo always > "
            "/sys/kernel/mm/transparent_hugepage/enabled`, or "
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"};
  return {
      "transparent hugepages", text,
      "registering 2 MiB pages costs a tenth: `echo always > /sys/kernel/mm/transparent_hugepage/enabled`"};
}

Check check_io_uring() {
  const PinSupport support = pin_support();
  if (support.io_uring)
    return {"io_uring", "fixed buffers work: pages are pinned as a NIC's driver pins them", {}};
  return {
      "io_uring", "refused: " + support.io_uring_refused,
      "pages are locked with mlock instead, which holds them but does not pin them; allow io_uring in the "
      "container's seccomp profile, or `sysctl kernel.io_uring_disabled=0`"};
}

std::string names_of(const MonitorFinding& monitor, const char* state, bool with_reason) {
  std::vector<std::string> names;
  for (const auto& event : monitor.events) {
    if (event.state != state) continue;
    names.push_back(with_reason ? fmt::format("{} ({})", event.name, event.why) : event.name);
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

/// The monitor that a program gets under `--monitor auto`.
Check check_memory_events(const std::vector<MonitorFinding>& monitors) {
  const MonitorFinding& chosen = chosen_by_auto(monitors);
  std::string text = fmt::format("by {}; fired and seen: {}", chosen.name, names_of(chosen, "seen", false));
  if (const std::string none = names_of(chosen, "nothing to see", true); !none.empty())
    text += fmt::format("; nothing to see of: {}", none);
  text += fmt::format("; never seen: {}", fmt::join(chosen.blind_spots, ", "));
  if (chosen.complete) return {"memory events", text, {}};
  const std::string why = chosen.refused.empty() ? "" : fmt::format(" ({})", chosen.refused);
  return {"memory events", fmt::format("{}; NOT seen: {}{}", text, names_of(chosen, "not seen", true), why),
          "no registration will be kept beyond its transfer: run without other hooks over libc (an "
          "instrumenting tool, another library's hooks), allow code to be patched (mprotect, SELinux "
          "execmem), or allow userfaultfd"};
}

void print_monitors(const std::vector<MonitorFinding>& monitors) {
  for (const MonitorFinding& monitor : monitors) {
    if (!monitor.refused.empty()) {
      fmt::print("  {}: cannot be had: {}\n", monitor.name, monitor.refused);
      continue;
    }
    const std::string missed = names_of(monitor, "not seen", false);
    fmt::print("  {}: {}\n", monitor.name,
               missed.empty() ? "keeps registrations" : fmt::format("keeps none; not seen: {}", missed));
    fmt::print("    never seen: {}\n", fmt::join(monitor.blind_spots, "; "));
  }
  fmt::print("  {:<28}", "event");
  for (const MonitorFinding& monitor : monitors)
    if (!monitor.events.empty()) fmt::print("{:<21}", monitor.name);
  fmt::print("\n");
  for (std::size_t row = 0; row < monitors.front().events.size(); ++row) {
    fmt::print("  {:<28}", monitors.front().events[row].name);
    for (const MonitorFinding& monitor : monitors)
      if (!monitor.events.empty())
        fmt::print("{:<21}",
                   row < monitor.events.size() ? monitor.events[row].state : "");  // libc's own: last
    fmt::print("\n");
  }
}

// A variable that makes another registration cache or memory hook active in the program.
struct Competitor {
  const char* variable;
  const char* harmless;  ///< the value that switches it off
  const char* what;
};
constexpr Competitor kCompetitors[] = {
    {"OMPI_MCA_mpi_leave_pinned", "0", "Open MPI's own leave-pinned cache"},
    {"OMPI_MCA_mpi_leave_pinned_pipeline", "0", "Open MPI's own leave-pinned cache"},
    {"UCX_MEM_EVENTS", "n", "UCX's memory hooks"},
    {"UCX_MEM_MMAP_HOOK_MODE", "none", "UCX's memory hooks"},
    {"UCX_RCACHE_ENABLE", "n", "UCX's registration cache"},
    {"FI_MR_CACHE_MONITOR", "disabled", "libfabric's registration cache"},
};

void check_competitors(std::vector<Check>& checks) {
  bool found = false;
  for (const Competitor& c : kCompetitors) {
    const char* value = std::getenv(c.variable);
    if (!value || std::string(value) == c.harmless) continue;
    found = true;
    checks.push_back(
        {"competing cache", fmt::format("{}={} asks for {}", c.variable, value, c.what),
         fmt::format("it keeps memory pinned that Pinion lets go: {}={}", c.variable, c.harmless)});
  }
  if (!found) checks.push_back({"competing caches", "none asked for in the environment", {}});
}

Check check_other_hooks(const std::vector<std::string>& hooks) {
  if (hooks.empty()) return {"other memory hooks", "none in this process", {}};
  return {"other memory hooks",
          fmt::format("{}; the memory events above were tried beside them", fmt::join(hooks, ", ")),
          {}};
}

/// Of the programs that were named; else of this process, which has the preloads.
Check check_own_calls(const std::vector<std::string>& programs) {
  std::vector<std::string> found = own_calls_here();
  for (const std::string& program : programs)
    for (const std::string& line : own_calls_of(program)) found.push_back(line);
  const std::string where =
      programs.empty() ? "the preloads (name a program to have it looked at: pinion doctor PROGRAM)"
                       : fmt::format("{} and the libraries loaded at its start", fmt::join(programs, ", "));
  if (found.empty()) return {"code past libc", fmt::format("none in {}", where), {}};
  const Error refused = userfaultfd_refused();
  const std::string text = fmt::format("{}", fmt::join(found, "; "));
  if (!refused) return {"code past libc", text + ": monitor auto takes userfaultfd beside libc", {}};
  return {"code past libc", text + ": monitor auto keeps no registration beyond its transfer",
          fmt::format("allow userfaultfd, which sees such calls too ({})", refused.message)};
}

Check check_libfabric() {
  const LibfabricFinding libfabric = feed_libfabric();
  if (libfabric.version.empty()) return {"libfabric", "not installed", {}};
  if (!libfabric.error)
    return {"libfabric",
            fmt::format("{}: under `pinion run` its own registration cache has Pinion's memory events; Open "
                        "MPI's memory monitor, where it imports one, stays",
                        libfabric.version),
            {}};
  const std::string text =
      fmt::format("{}: its own registration cache does without Pinion's memory events: {}", libfabric.version,
                  libfabric.error.message);
  if (libfabric.error.code == ECANCELED) return {"libfabric", text, {}};
  return {"libfabric", text, "FI_MR_CACHE_MONITOR=disabled keeps it from caching registrations"};
}

/// The libraries above the verbs front, and its blind spots.
Check check_verbs_front() {
  std::string text = "where Pinion may act below libraries, `pinion run` switches off the caches of: ";
  std::vector<std::string> named, users;
  for (const CacheAbove& cache : caches_above()) {
    named.push_back(cache.library);
    for (const auto& [name, value] : cache.off)
      if (const char* set = std::getenv(name.c_str()); set && value != set)
        users.push_back(fmt::format("{}={}", name, set));
  }
  text += fmt::format("{}; not seen: registrations of programs that have a libibverbs of their own inside",
                      fmt::join(named, ", "));
  if (users.empty()) return {"verbs front", text, {}};
  return {"verbs front", text,
          fmt::format("{} stays as you have set it, and a cache above keeps its registrations",
                      fmt::join(users, ", "))};
}

Check check_preloads() {
  const char* preload = std::getenv("LD_PRELOAD");
  if (!preload || !*preload) return {"preloads", "LD_PRELOAD is not set", {}};
  return {
      "preloads",
      fmt::format("LD_PRELOAD={}; Pinion goes before it, and the events above were tested with it", preload),
      {}};
}

Check check_fork() {
  utsname system{};
  ::uname(&system);
  int major = 0, minor = 0;
  std::sscanf(system.release, "%d.%d", &major, &minor);
  const bool copies = major > 5 || (major == 5 && minor >= 12);
  const std::string kernel = fmt::format("kernel {}.{}", major, minor);
  if (!copies)
    return {"fork", kernel + ": after fork, pinned pages may belong to the child",
            "set RDMAV_FORK_SAFE=1, or do not fork while transfers run"};
  if (std::getenv("RDMAV_FORK_SAFE") || std::getenv("IBV_FORK_SAFE"))
    return {"fork", kernel + " copies pinned pages at fork, yet fork-safe mode of libibverbs is on",
            "unset RDMAV_FORK_SAFE and IBV_FORK_SAFE: they cost time at each registration"};
  return {"fork", kernel + " copies pinned pages at fork, slowly: idle registrations are let go before", {}};
}

Check check_preload_library() {
  try {
    return {"preload library", preload_library(), {}};
  } catch (const UsageError& error) {
    return {"preload library", error.what(), "`pinion run` needs it: install the whole package"};
  }
}

void doctor(bool json, const std::vector<std::string>& programs) {
  const std::vector<std::string> other_hooks = hooks_of_others();
  const std::vector<MonitorFinding> monitors = try_all_monitors();
  std::vector<Check> checks = {what_acts(),
                               check_memlock(),
                               check_cgroup(),
                               check_hugepages(),
                               check_transparent_hugepages(),
                               check_io_uring(),
                               check_memory_events(monitors)};
  for (const Check& check : what_acts_by_library()) checks.push_back(check);
  checks.push_back(check_own_calls(programs));
  checks.push_back(check_other_hooks(other_hooks));
  check_competitors(checks);
  checks.push_back(check_libfabric());
  checks.push_back(check_verbs_front());
  for (auto* check : {check_preloads, check_fork, check_preload_library}) checks.push_back(check());

  if (json) {
    Json list = Json::array();
    for (const Check& c : checks)
      list.push_back(
          {{"name", c.name}, {"status", c.cure.empty() ? "ok" : "warn"}, {"text", c.text}, {"cure", c.cure}});
    Json tried = Json::array();
    for (const MonitorFinding& monitor : monitors) tried.push_back(to_json(monitor));
    fmt::print("{}", dump({{"schema", "pinion-doctor-1"},
                           {"checks", std::move(list)},
                           {"monitor", chosen_by_auto(monitors).name},
                           {"monitors", std::move(tried)}}));
    return;
  }
  for (const Check& c : checks) {
    fmt::print("{:<5} {}: {}\n", c.cure.empty() ? "ok" : "warn", c.name, c.text);
    if (!c.cure.empty()) fmt::print("      {}\n", c.cure);
  }
  fmt::print("\nmemory monitors (auto chooses {})\n", chosen_by_auto(monitors).name);
  print_monitors(monitors);
  const auto warnings =
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return !c.cure.empty(); });
  fmt::print("{} of {} checks warn\n", warnings, checks.size());
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("doctor", "Find problems on this machine, and show how to fix them");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "one JSON object instead of text")->disable_flag_override();
  auto monitor = std::make_shared<std::string>();
  sub->add_option("--monitor", *monitor,
                  "try this memory monitor alone, as a program has it under this one's preloads")
      ->type_name("CHOICE");
  auto programs = std::make_shared<std::vector<std::string>>();
  sub->add_option(
      "PROGRAM", *programs,
      "look for system calls made without libc in these programs, and in the libraries that they load");
  sub->callback([json, monitor, programs] {
    if (monitor->empty()) return doctor(*json, *programs);
    MonitorKind kind{};
    if (const Error error = find_monitor(*monitor, kind)) throw UsageError(error.message);
    const MonitorFinding finding = try_monitor(kind);
    if (*json)
      fmt::print("{}", dump(to_json(finding)));
    else
      print_monitors({finding});
  });
}

}  // namespace pinion::cli
