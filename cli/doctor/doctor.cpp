// `pinion doctor`: problems on this machine and in this environment, those with the largest gain first, each
// with its effect, its cure and the person for it (user or admin).
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>

#include "base/memory_groups.h"
#include "cli/command.h"
#include "cli/doctor/caches_above.h"
#include "cli/doctor/finding.h"
#include "cli/doctor/gpus.h"
#include "cli/doctor/interconnects.h"
#include "cli/doctor/monitors.h"
#include "cli/doctor/other_hooks.h"
#include "cli/doctor/own_calls.h"
#include "cli/option_flags.h"
#include "cli/report/report_json.h"
#include "cli/run/launch.h"
#include "cli/run/preload_reach.h"
#include "cli/system_files.h"
#include "cli/text.h"
#include "device/kernel/collapse.h"
#include "device/kernel/memlock.h"
#include "device/kernel/pin.h"
#include "device/node_devices.h"
#include "monitor/userfault.h"

namespace pinion::cli {

namespace {

using Check = Finding;

constexpr std::size_t kSmallLimit = 64 << 20;

Check check_memlock() {
  const Memlock m = memlock();
  if (m.limit == SIZE_MAX) return {"memlock", "RLIMIT_MEMLOCK is unlimited", {}};
  const std::string limit = fmt::format("RLIMIT_MEMLOCK is {}", bytes_text(static_cast<double>(m.limit)));
  if (m.exempt) return {"memlock", limit + ", and CAP_IPC_LOCK exempts this process", {}};
  std::string text = limit +
                     " for all processes of the user together; the kernel counts whole "
                     "hugepages, and pages that buffers share once for each: up to 2 MiB for 4 KiB";
  rlimit bounds{};
  ::getrlimit(RLIMIT_MEMLOCK, &bounds);
  const bool unlimited = bounds.rlim_max == RLIM_INFINITY;
  if (bounds.rlim_max > bounds.rlim_cur)
    text += "; `pinion run` raises it to its hard limit, " +
            (unlimited ? "unlimited" : bytes_text(static_cast<double>(bounds.rlim_max)));
  if (unlimited || bounds.rlim_max >= kSmallLimit) return {"memlock", text, {}};
  const std::string effect = "transfers beyond it go without registration, slower; a library may abort";
  return {"memlock", text,
          Cure{Gain::registration, effect, Who::admin,
               "`* - memlock unlimited` in /etc/security/limits.conf, and LimitMEMLOCK=infinity in the batch "
               "system's unit"}};
}

// The least limit of this process's groups; 0 where there is none.
std::uint64_t cgroup_limit() {
  std::uint64_t least = 0;
  for (const MemoryGroup& group : memory_groups()) {
    const std::uint64_t limit = std::strtoull(read_text(group.limit_file()).c_str(), nullptr, 10);
    // cgroup v1 writes "no limit" as a number near 2^63.
    if (limit != 0 && limit < (std::uint64_t{1} << 60) && (least == 0 || limit < least)) least = limit;
  }
  return least;
}

Check check_cgroup() {
  const std::uint64_t limit = cgroup_limit();
  if (limit == 0) return {"cgroup", "no memory limit", {}};
  return {"cgroup", fmt::format("memory limit {}", bytes_text(static_cast<double>(limit))),
          Cure{Gain::registration, "pinned pages count, and a job beyond it is killed", Who::user,
               "keep `--limit` times the ranks of the node, or `--node-limit`, well below it"}};
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

constexpr const char* kSmallPages = "registering 4 KiB pages takes ten times as long as 2 MiB pages";

/// Why `--hugepages auto` makes none here; empty: it may.
std::string no_collapse_text() {
  switch (collapse_bar()) {
    case CollapseBar::none:
      return waits_matter() ? "processors are set aside, or a thread is real-time: its calls would wait" : "";
    case CollapseBar::unsupported:
      return "this kernel has none";
    case CollapseBar::never:
      return "an administrator has switched them off";
    case CollapseBar::large:
      return fmt::format("one has {}, and none above 32 MiB is made",
                         bytes_text(static_cast<double>(transparent_page_size())));
    case CollapseBar::switched_off:
      return "they are switched off for this process and its children (prctl)";
    case CollapseBar::old_kernel:
      return "this kernel knows no MADV_COLLAPSE (Linux 6.1)";
  }
  return {};
}

Check check_transparent_hugepages() {
  const std::string mode = chosen_word(read_text("/sys/kernel/mm/transparent_hugepage/enabled"));
  if (mode.empty()) return {"transparent hugepages", "not supported by this kernel", {}};
  const std::string none = no_collapse_text();
  const std::string text =
      fmt::format("mode {}; `--hugepages auto` {}", mode,
                  none.empty() ? "(the default) turns idle buffers into them" : "makes none: " + none);
  if (mode == "always" || none.empty()) return {"transparent hugepages", text, {}};
  if (mode == "madvise")
    return {"transparent hugepages", text,
            Cure{Gain::time, kSmallPages, Who::user,
                 "`pinion run --hugepages heap`, or GLIBC_TUNABLES=glibc.malloc.hugetlb=1"}};
  return {"transparent hugepages", text,
          Cure{Gain::time, kSmallPages, Who::admin,
               "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"}};
}

Check check_io_uring() {
  const PinSupport support = pin_support();
  if (support.io_uring)
    return {"io_uring", "fixed buffers work: pages are pinned as a NIC's driver pins them", {}};
  return {"io_uring", "refused: " + support.io_uring_refused,
          Cure{Gain::time, "without a NIC, pages are locked with mlock, which takes other times than pinning",
               Who::admin,
               "allow io_uring in the container's seccomp profile, or `sysctl kernel.io_uring_disabled=0`"}};
}

std::string names_of(const MonitorFinding& monitor, const char* state, bool with_reason) {
  std::vector<std::string> names;
  for (const auto& event : monitor.events) {
    if (event.state != state) continue;
    names.push_back(with_reason ? fmt::format("{} ({})", event.name, event.why) : event.name);
  }
  return fmt::format("{}", fmt::join(names, "; "));
}

constexpr const char* kNothingKept = "no registration is kept beyond its transfer";

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
          Cure{Gain::keeping, kNothingKept, Who::admin,
               "allow code to be patched (mprotect, SELinux execmem), or `sysctl "
               "vm.unprivileged_userfaultfd=1`; a user can run without other hooks over libc (an "
               "instrumenting tool, another library's)"}};
}

/// "munmap by syscall()    seen by libc; not seen by symbols"
void print_event(std::size_t row, const std::vector<MonitorFinding>& monitors) {
  std::vector<std::pair<std::string, std::vector<std::string>>> by_state;
  for (const MonitorFinding& monitor : monitors) {
    if (row >= monitor.events.size()) continue;  // libc's own: last
    const std::string& state = monitor.events[row].state;
    const auto same = std::find_if(by_state.begin(), by_state.end(),
                                   [&](const auto& known) { return known.first == state; });
    auto& names = same == by_state.end() ? by_state.emplace_back(state, std::vector<std::string>{}) : *same;
    names.second.push_back(monitor.name);
  }
  std::vector<std::string> parts;
  for (const auto& [state, names] : by_state)
    parts.push_back(fmt::format("{} by {}", state, fmt::join(names, ", ")));
  const std::string indent(30, ' ');
  fmt::print("  {:<28}{}", monitors.front().events[row].name,
             wrapped(fmt::format("{}", fmt::join(parts, "; ")), indent).substr(indent.size()));
}

void print_monitors(const std::vector<MonitorFinding>& monitors) {
  for (const MonitorFinding& monitor : monitors) {
    if (!monitor.refused.empty()) {
      fmt::print("{}", wrapped(fmt::format("{}: unavailable: {}", monitor.name, monitor.refused), "  "));
      continue;
    }
    const std::string missed = names_of(monitor, "not seen", false);
    fmt::print("{}", wrapped(fmt::format("{}: {}", monitor.name,
                                         missed.empty() ? "keeps registrations"
                                                        : fmt::format("keeps none; not seen: {}", missed)),
                             "  "));
    fmt::print("{}", wrapped(fmt::format("never seen: {}", fmt::join(monitor.blind_spots, "; ")), "    "));
  }
  for (std::size_t row = 0; row < monitors.front().events.size(); ++row) print_event(row, monitors);
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
    checks.push_back({"competing cache", fmt::format("{}={} asks for {}", c.variable, value, c.what),
                      Cure{Gain::memory, "it keeps memory pinned that Pinion lets go", Who::user,
                           fmt::format("`export {}={}`", c.variable, c.harmless)}});
  }
  if (!found) checks.push_back({"competing caches", "none asked for in the environment", {}});
}

Check check_other_hooks(const std::vector<std::string>& hooks) {
  if (hooks.empty()) return {"other memory hooks", "none in this process", {}};
  return {"other memory hooks",
          fmt::format("{}; the memory events above were tried beside them", fmt::join(hooks, ", ")),
          {}};
}

/// Checks the named programs, or else this process, which has the preloads.
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
          Cure{Gain::keeping, kNothingKept, Who::admin,
               fmt::format("`sysctl vm.unprivileged_userfaultfd=1`: userfaultfd sees such calls too ({})",
                           refused.message)}};
}

Check check_libfabric() {
  const LibfabricFinding libfabric = feed_libfabric();
  if (libfabric.version.empty()) return {"libfabric", "not installed", {}};
  if (!libfabric.error && !libfabric.plugin.empty())
    return {"libfabric",
            fmt::format(
                "{}: it takes Pinion's memory events, but its provider {} is a plug-in with a registration "
                "cache of its own, which never starts them: that cache watches memory by itself",
                libfabric.version, libfabric.plugin),
            {}};
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
  return {"libfabric", text,
          Cure{Gain::memory, "its cache watches memory by hooks of its own, beside Pinion's", Who::user,
               "`export FI_MR_CACHE_MONITOR=disabled` keeps it from caching registrations"}};
}

/// The libraries above the verbs front, and its blind spots.
Check check_verbs_front() {
  std::string text = "where Pinion may act below libraries, `pinion run` switches off the caches of: ";
  std::vector<std::string> named, users;
  for (const CacheAbove& cache : caches_above()) {
    named.push_back(cache.library + (cache.off_in_mpi_only
                                         ? " (in MPI programs alone: without it UCX may die when a peer does)"
                                         : ""));
    for (const auto& [name, value] : cache.off)
      if (const char* set = std::getenv(name.c_str()); set && value != set)
        users.push_back(fmt::format("{}={}", name, set));
  }
  text += fmt::format("{}; not seen: registrations of programs that have a libibverbs of their own inside",
                      fmt::join(named, ", "));
  if (const std::string gpu = gpu_file(); !gpu.empty())
    text +=
        fmt::format("; here these caches stay on, as they keep registrations of GPU memory, too ({})", gpu);
  if (users.empty()) return {"verbs front", text, {}};
  return {"verbs front", text,
          Cure{Gain::memory,
               fmt::format("{} stays as you have set it, and a cache above keeps its registrations",
                           fmt::join(users, ", ")),
               Who::user, "`unset` it, and `pinion run` switches that cache off"}};
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
            Cure{Gain::data, "the NIC may write to the child's copy", Who::user,
                 "`export RDMAV_FORK_SAFE=1`, or fork only between transfers"}};
  if (std::getenv("RDMAV_FORK_SAFE") || std::getenv("IBV_FORK_SAFE"))
    return {"fork", kernel + " copies pinned pages at fork, yet fork-safe mode of libibverbs is on",
            Cure{Gain::time, "it costs time at each registration", Who::user,
                 "`unset RDMAV_FORK_SAFE IBV_FORK_SAFE`"}};
  return {"fork", kernel + " copies pinned pages at fork, slowly: idle registrations are let go before", {}};
}

Check check_preload_reach(const std::vector<std::string>& programs) {
  std::vector<std::string> unreached;
  for (const std::string& program : programs)
    for (const Unreached& found : unreached_programs({program})) unreached.push_back(found.line);
  if (unreached.empty()) return {"preload", "these programs are reached, as far as their files show", {}};
  return {"preload", fmt::format("{}", fmt::join(unreached, "; ")),
          Cure{Gain::start, "they run as without Pinion", Who::user,
               "run them without these privileges, or link them with the system's libraries"}};
}

Check check_preload_library() {
  try {
    return {"preload library", preload_library(), {}};
  } catch (const UsageError& error) {
    return {"preload library", error.what(),
            Cure{Gain::start, "`pinion run` starts no program", Who::user, "install the whole package"}};
  }
}

std::vector<Check> all_checks(const std::vector<std::string>& programs,
                              const std::vector<MonitorFinding>& monitors,
                              const std::vector<std::string>& other_hooks) {
  std::vector<Check> checks = {what_acts(),
                               check_memlock(),
                               check_cgroup(),
                               check_hugepages(),
                               check_transparent_hugepages(),
                               check_io_uring(),
                               check_memory_events(monitors)};
  for (const Check& check : what_acts_by_library()) checks.push_back(check);
  checks.push_back(check_own_calls(programs));
  if (!programs.empty()) checks.push_back(check_preload_reach(programs));
  checks.push_back(check_other_hooks(other_hooks));
  check_competitors(checks);
  checks.push_back(check_libfabric());
  checks.push_back(check_verbs_front());
  for (const Check& check : gpu_findings(gpus_here())) checks.push_back(check);
  for (auto* check : {check_preloads, check_fork, check_preload_library}) checks.push_back(check());
  // Problems first.
  const auto place = [](const Check& c) { return c.cure ? static_cast<int>(c.cure->gain) : INT_MAX; };
  std::stable_sort(checks.begin(), checks.end(),
                   [&](const Check& a, const Check& b) { return place(a) < place(b); });
  return checks;
}

const char* to_string(Who who) { return who == Who::user ? "user" : "admin"; }

Json to_json(const Check& c) {
  Json json{{"name", c.name},
            {"status", c.cure ? "warn" : "ok"},
            {"text", c.text},
            {"cure", c.cure ? c.cure->text : ""}};
  if (c.cure) {
    json["effect"] = c.cure->effect;
    json["by"] = to_string(c.cure->who);
  }
  return json;
}

/// "ok    fork: ...", its further lines below the name.
void print_check(const Check& c) {
  const std::string indent(6, ' ');
  const std::string text = wrapped(fmt::format("{}: {}", c.name, c.text), indent).substr(indent.size());
  fmt::print("{:<6}{}", c.cure ? "warn" : "ok", text);
  if (!c.cure) return;
  fmt::print("{}", wrapped("effect: " + c.cure->effect, indent));
  fmt::print("{}", wrapped(fmt::format("{}: {}", to_string(c.cure->who), c.cure->text), indent));
}

void doctor_of_gpus(bool json) {
  const Json gpus = measure_gpus();
  if (json) return fmt::print("{}", dump(gpus));
  for (const Check& c : gpu_findings(gpus)) print_check(c);
}

void doctor(bool json, const std::vector<std::string>& programs) {
  look_for_caches_of(programs.empty() ? CommandLine{"mpiexec", "python3"} : programs);
  OptionFlags().options();  // Mistakes in PINION are no fault of the libraries that read it.
  const std::vector<std::string> other_hooks = hooks_of_others();
  const std::vector<MonitorFinding> monitors = try_all_monitors();
  const std::vector<Check> checks = all_checks(programs, monitors, other_hooks);
  if (json) {
    Json list = Json::array();
    for (const Check& c : checks) list.push_back(to_json(c));
    Json tried = Json::array();
    for (const MonitorFinding& monitor : monitors) tried.push_back(to_json(monitor));
    fmt::print("{}", dump({{"schema", "pinion-doctor-1"},
                           {"checks", std::move(list)},
                           {"monitor", chosen_by_auto(monitors).name},
                           {"monitors", std::move(tried)}}));
    return;
  }
  const auto problems = static_cast<std::uint64_t>(
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return c.cure.has_value(); }));
  fmt::print("{} in {} checks{}\n", plural_text(problems, "problem", "problems"), checks.size(),
             problems > 1 ? ", the largest gain first" : "");
  for (const Check& c : checks) print_check(c);
  fmt::print("\nmemory monitors (auto chooses {})\n", chosen_by_auto(monitors).name);
  print_monitors(monitors);
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
  auto gpus = std::make_shared<bool>(false);
  sub->add_flag("--gpus", *gpus, "measure the GPUs alone, in this process, within 20 s")
      ->disable_flag_override();
  auto costs = std::make_shared<std::string>();
  sub->add_option("--gpu-costs", *costs, "write the first GPU's costs of registering, as a file for --nic")
      ->type_name("FILE");
  sub->callback([=] {
    if (!costs->empty()) return write_gpu_costs(gpus_here(), *costs);
    if (*gpus) return doctor_of_gpus(*json);
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
