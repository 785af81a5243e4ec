#include "base/memory_groups.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace pinion {

std::string system_root() {
  const char* const root = std::getenv("PINION_TEST_ROOT");
  return root == nullptr ? "" : root;
}

std::vector<MemoryGroup> memory_groups(const std::string& root) {
  std::vector<MemoryGroup> groups;
  std::ifstream self(root + "/proc/self/cgroup");
  // "0::/group" of version 2, "4:memory:/group" of version 1.
  for (std::string line; std::getline(self, line);) {
    const auto path = line.find(":/");
    if (path == std::string::npos) continue;
    const bool unified = line.compare(0, path, "0:") == 0;
    if (!unified && line.find(":memory:") == std::string::npos) continue;
    const std::string top = root + (unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    for (std::string group = line.substr(path + 1); !group.empty();
         group.erase(group == "/" ? 0 : std::max<std::size_t>(1, group.find_last_of('/'))))
      groups.push_back({top + (group == "/" ? "" : group), unified});
  }
  return groups;
}

}  // namespace pinion
