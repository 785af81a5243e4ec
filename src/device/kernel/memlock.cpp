#include "device/kernel/memlock.h"

#include <linux/capability.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "base/units.h"
#include "monitor/own_process.h"

namespace pinion {

Memlock memlock() {
  Memlock state;
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) state.limit = limit.rlim_cur;
  KernelText status("/proc/thread-self/status");
  for (std::string line; status.line(line);) {
    std::size_t kib = 0;
    unsigned long long capabilities = 0;
    if (std::sscanf(line.c_str(), "VmLck: %zu kB", &kib) == 1) state.locked = kib << 10;
    if (std::sscanf(line.c_str(), "VmPin: %zu kB", &kib) == 1) state.pinned = kib << 10;
    if (std::sscanf(line.c_str(), "CapEff: %llx", &capabilities) == 1)
      state.exempt = (capabilities >> CAP_IPC_LOCK) & 1;
  }
  return state;
}

std::optional<std::size_t> raise_memlock() {
  const Memlock before = memlock();
  rlimit limit{};
  if (!before.limited() || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
    return {};
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {};
  return before.limit;
}

Error memlock_error(int code, std::size_t need) {
  const Memlock state = memlock();
  const std::string size = format_size(need);
  if (!state.limited()) {
    return Error::make(
        code,
        "cannot pin %s: %s; no limit of locked memory holds here, so the machine (or the cgroup) is "
        "short of memory: lower --limit",
        size.c_str(), std::strerror(code));
  }
  return Error::make(
      code,
      "cannot pin %s: the limit of locked memory (RLIMIT_MEMLOCK) is %s; this process has locked %s and "
      "pinned %s already, and other processes of the user may have more. Raise it (`ulimit -l unlimited`, "
      "memlock in /etc/security/limits.conf, LimitMEMLOCK= of the batch daemon) or lower --limit",
      size.c_str(), format_size(state.limit).c_str(), format_size(state.locked).c_str(),
      format_size(state.pinned).c_str());
}

}  // namespace pinion
