// The kernel's way to give a process fewer RDMA objects than the device has (regions, queues, protection
// domains alike): a cgroup. With few regions, running out of them can be tested.
#pragma once

#include <sys/mount.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

namespace pinion {

/// Puts the calling process into a cgroup with `most` objects of rxe0. False: this kernel has no such
/// cgroups. As root.
inline bool have_few_objects(int most) {
  const std::string root = "/sys/fs/cgroup", group = root + "/few";
  const auto write = [](const std::string& file, const std::string& text) {
    std::ofstream stream(file);
    stream << text << std::flush;
    return stream.good();
  };
  ::mount("none", root.c_str(), "cgroup2", 0, nullptr);  // it may be there
  ::mkdir(group.c_str(), 0755);
  return write(root + "/cgroup.subtree_control", "+rdma") &&
         write(group + "/rdma.max", "rxe0 hca_object=" + std::to_string(most)) &&
         write(group + "/cgroup.procs", "0");
}

}  // namespace pinion
