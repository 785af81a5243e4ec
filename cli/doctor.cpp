// `pinion doctor`: what on this machine, and in this environment, will hurt.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "command.h"
#include "device/memlock.h"
#include "device/pin.h"
#include "launch.h"
#include "monitor/libc_hooks.h"
#include "report_json.h"
#include "system_files.h"
#include "text.h"

namespace pinion::cli {

namespace {

struct Check {
  std::string name;
  std::string text;
  std::string cure;  ///< empty: all is well
};

constexpr std::size_t kSmallLimit = 64 << 20;

Check check_memlock() {
  const Memlock m = memlock();
  if (m.limit == SIZE_MAX) return {"memlock", "RLIMIT_MEMLOCK is unlimited", {}};
  const std::string limit = fmt::format("RLIMIT_MEMLOCK is {}", bytes_text(static_cast<double>(m.limit)));
  if (m.exempt) return {"memlock", limit + ", and CAP_IPC_LOCK exempts this process", {}};
  const std::string text = limit + " for all processes of the user together";
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

Check check_nics() {
  const auto nics = names_in("/sys/class/infiniband");
  if (nics.empty())
    return {"RDMA devices", "none: registration is pinned by the kernel, a NIC's cost is modelled", {}};
  return {"RDMA devices", fmt::format("{}", fmt::join(nics, ", ")), {}};
}

Check check_memory_events() {
  const auto ignore = [](Range) {};
  const HookReport hooks = install_libc_hooks({ignore, ignore});
  const HookReport events = self_test();
  uninstall_libc_hooks();

  std::vector<std::string> seen, troubles, nothing;
  for (const HookReport* report : {&hooks, &events}) {
    for (const HookStatus& row : report->rows) {
      if (row.state == HookState::failed)
        troubles.push_back(fmt::format("{}: {}", row.name, row.error.message));
      if (row.state == HookState::skipped)
        nothing.push_back(fmt::format("{} ({})", row.name, row.error.message));
      if (report == &events && row.state == HookState::good) seen.emplace_back(row.name);
    }
  }
  std::string text =
      fmt::format("libc's functions are redirected; fired and seen: {}", fmt::join(seen, ", "));
  if (!nothing.empty()) text += fmt::format("; nothing to see of: {}", fmt::join(nothing, ", "));
  text +=
      "; never seen: system calls made without libc, io_uring's madvise, files truncated or punched under a "
      "mapping, userfaultfd's moves";
  if (hooks.complete && events.complete) return {"memory events", text, {}};
  return {"memory events", fmt::format("{}; NOT seen: {}", text, fmt::join(troubles, "; ")),
          "no registration will be kept beyond its transfer: run without what redirects libc as well (an "
          "instrumenting tool, another library's hooks), or allow code to be patched (mprotect, SELinux "
          "execmem)"};
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

void doctor(bool json) {
  std::vector<Check> checks = {
      check_memlock(),  check_cgroup(), check_hugepages(),    check_transparent_hugepages(),
      check_io_uring(), check_nics(),   check_memory_events()};
  check_competitors(checks);
  for (auto* check : {check_preloads, check_fork, check_preload_library}) checks.push_back(check());

  if (json) {
    Json list = Json::array();
    for (const Check& c : checks)
      list.push_back(
          {{"name", c.name}, {"status", c.cure.empty() ? "ok" : "warn"}, {"text", c.text}, {"cure", c.cure}});
    fmt::print("{}", dump({{"schema", "pinion-doctor-1"}, {"checks", std::move(list)}}));
    return;
  }
  for (const Check& c : checks) {
    fmt::print("{:<5} {}: {}\n", c.cure.empty() ? "ok" : "warn", c.name, c.text);
    if (!c.cure.empty()) fmt::print("      {}\n", c.cure);
  }
  const auto warnings =
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return !c.cure.empty(); });
  fmt::print("{} of {} checks warn\n", warnings, checks.size());
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("doctor", "Say what on this machine will hurt, and the cure");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "one JSON object instead of text");
  sub->callback([json] { doctor(*json); });
}

}  // namespace pinion::cli
