#include "registry/budget.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/machine_memory.h"
#include "base/memory_groups.h"

namespace pinion {

namespace {

bool has_ipc_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return data[CAP_IPC_LOCK / 32].effective & (1u << (CAP_IPC_LOCK % 32));
}

/// Returns the least limit of the process's groups. Version 1 writes "none" as a number near 2^63.
std::uint64_t cgroup_memory_limit() {
  std::uint64_t least = UINT64_MAX;
  for (const MemoryGroup& group : memory_groups()) {
    std::ifstream max(group.limit_file());
    std::uint64_t bytes = 0;
    if (max >> bytes) least = std::min(least, bytes);
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
