#include "registry/budget.h"

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace pinion {

namespace {

bool has_ipc_lock() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  return data[CAP_IPC_LOCK / 32].effective & (1u << (CAP_IPC_LOCK % 32));
}

// cgroup v2: the limit of the process's own group; its ancestors' limits may be lower and are looked at as
// well.
std::uint64_t cgroup_memory_limit() {
  std::ifstream self("/proc/self/cgroup");
  std::string line;
  std::uint64_t least = UINT64_MAX;
  while (std::getline(self, line)) {
    if (line.rfind("0::", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty() && path != "/";
         path.erase(path.find_last_of('/'))) {
      std::ifstream max("/sys/fs/cgroup" + path + "/memory.max");
      std::uint64_t bytes = 0;
      if (max >> bytes) least = std::min(least, bytes);
    }
  }
  return least;
}

}  // namespace

Limits find_limits(std::uint64_t user_bytes, std::uint64_t user_regions, const DeviceCaps& caps,
                   int local_processes) {
  Limits limits;
  const auto take = [&](std::uint64_t bytes, const char* from) {
    if (bytes >= limits.bytes) return;
    limits.bytes = bytes;
    limits.bytes_from = from;
  };
  const auto share = static_cast<std::uint64_t>(std::max(1, local_processes));
  take(static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) / 2 / share,
       "half of the node's memory, shared by its ranks");
  rlimit memlock{};
  if (!has_ipc_lock() && ::getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY)
    take(memlock.rlim_cur / share, "RLIMIT_MEMLOCK (`ulimit -l`), shared by the user's ranks");
  const std::uint64_t cgroup = cgroup_memory_limit();
  if (cgroup != UINT64_MAX)
    take(cgroup / 2 / share, "half of the cgroup's memory.max, shared by the node's ranks");
  if (caps.max_bytes) take(caps.max_bytes, "the device's cap on registered bytes");
  if (user_bytes) take(user_bytes, "--limit");
  if (caps.max_regions) limits.regions = caps.max_regions;
  if (user_regions) limits.regions = std::min(limits.regions, user_regions);
  return limits;
}

}  // namespace pinion
