#include "registry/budget.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/machine_memory.h"

namespace pinion {

namespace {

bool has_ipc_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return data[CAP_IPC_LOCK / 32].effective & (1u << (CAP_IPC_LOCK % 32));
}

/// The least number in `file` of `group` and its ancestors under `root`. In a container the own group may be
/// the root that it sees ("/"), and have a limit all the same.
std::uint64_t least_in_hierarchy(const std::string& root, std::string group, const char* file) {
  std::uint64_t least = UINT64_MAX;
  while (!group.empty()) {
    std::ifstream max(root + group + "/" + file);
    std::uint64_t bytes = 0;
    if (max >> bytes) least = std::min(least, bytes);
    group.erase(group == "/" ? 0 : std::max<std::size_t>(1, group.find_last_of('/')));
  }
  return least;
}

/// Returns the least limit of version 2 ("0::/group") and, where it still has the memory controller, version
/// 1
/// ("4:memory:/group"), which writes "none" as a number near 2^63.
std::uint64_t cgroup_memory_limit() {
  std::ifstream self("/proc/self/cgroup");
  std::string line;
  std::uint64_t least = UINT64_MAX;
  while (std::getline(self, line)) {
    const auto path = line.find(":/");
    if (path == std::string::npos) continue;
    const std::string group = line.substr(path + 1);
    if (line.compare(0, path, "0:") == 0)
      least = std::min(least, least_in_hierarchy("/sys/fs/cgroup", group, "memory.max"));
    else if (line.find(":memory:") != std::string::npos)
      least = std::min(least, least_in_hierarchy("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
  }
  return least;
}

}  // namespace

Limits find_limits(std::uint64_t user_bytes, std::uint64_t user_regions, int local_processes,
                   std::uint64_t node_bytes, Pinned pinned) {
  Limits limits;
  const auto take = [&](std::uint64_t bytes, const char* from) {
    if (bytes >= limits.bytes) return;
    limits.bytes = bytes;
    limits.bytes_from = from;
  };
  const auto share = static_cast<std::uint64_t>(std::max(1, local_processes));
  take(machine_memory() / 2 / share, "half of the node's memory, shared by its ranks");
  rlimit memlock{};
  if (pinned != Pinned::uncounted && !has_ipc_lock() && ::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 &&
      memlock.rlim_cur != RLIM_INFINITY) {
    if (pinned == Pinned::by_process)
      take(memlock.rlim_cur, "RLIMIT_MEMLOCK (`ulimit -l`)");
    else
      take(memlock.rlim_cur / share, "RLIMIT_MEMLOCK (`ulimit -l`), shared by the user's ranks");
  }
  const std::uint64_t cgroup = cgroup_memory_limit();
  if (cgroup != UINT64_MAX)
    take(cgroup / 2 / share, "half of the cgroup's memory.max, shared by the node's ranks");
  if (user_bytes) take(user_bytes, "--limit");
  if (node_bytes) take(node_bytes, "--node-limit, shared by the node's processes");
  if (user_regions) limits.regions = user_regions;
  return limits;
}

}  // namespace pinion
