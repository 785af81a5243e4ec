#include "registry/budget.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/machine_memory.h"
#include "base/memory_groups.h"
#include "monitor/own_process.h"

namespace pinion {

namespace {

/// The part of RLIMIT_MEMLOCK that is left to calls of the program that no hook meets (docs/bounds.md).
constexpr std::uint64_t kLeftToTheProgram = 8;

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
    least = std::min(least, kernel_number(group.limit_file().c_str(), UINT64_MAX));
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
    const std::uint64_t most = pinned == Pinned::by_process ? memlock.rlim_cur : memlock.rlim_cur / share;
    take(most, pinned == Pinned::by_process ? "RLIMIT_MEMLOCK (`ulimit -l`)"
                                            : "RLIMIT_MEMLOCK (`ulimit -l`), shared by the user's ranks");
    limits.idle_bytes = most - most / kLeftToTheProgram;
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
