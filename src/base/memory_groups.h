// The control groups that bound this process's memory, by the kernel's files: version 2, and version 1 where
// it has the memory controller. Tests replace the root of these files by PINION_TEST_ROOT.
//
// Ordinary code, any thread.
#pragma once

#include <string>
#include <vector>

namespace pinion {

/// "" for the system's own files; else the directory in which a test keeps its /proc and /sys.
std::string system_root();

struct MemoryGroup {
  std::string directory;
  bool unified = true;  ///< version 2

  std::string limit_file() const { return directory + (unified ? "/memory.max" : "/memory.limit_in_bytes"); }
};

/// The process's groups, each followed by those around it. In a container the own group may be the root that
/// it sees, and have a limit all the same.
std::vector<MemoryGroup> memory_groups(const std::string& root = system_root());

}  // namespace pinion
