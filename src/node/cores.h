// Which CPUs there are, and which of them share a core: read from sysfs. hwloc reads the same files, but
// starts slowly in each rank (evidence-measured.md). Ordinary code.
#pragma once

#include <bitset>
#include <vector>

#include "monitor/own_threads.h"

namespace pinion::node {

/// CPUs beyond this many are left out.
constexpr int kMostCpus = KernelCpus::kMost;
using CpuSet = std::bitset<kMostCpus>;

/// The CPUs that a thread may run on (0: the calling one). Empty where the system refuses the answer.
CpuSet cpus_of(int thread);
/// The CPUs of Pinion's threads (monitor/own_threads.h): a program binds its own to one CPU each.
CpuSet cpus_of_own_threads();
/// Lets the calling thread run on those CPUs, as far as its cpuset allows them.
void run_on(const CpuSet& cpus);

/// The cores of the machine.
class Cores {
 public:
  /// Sets the core of each CPU, for tests.
  explicit Cores(std::vector<int> core_of) : core_of_(std::move(core_of)) {}
  static Cores of_this_machine();

  /// The number of cores that the CPUs belong to.
  int count(const CpuSet& cpus) const;
  /// One CPU of each core that has none in `taken`, in order.
  std::vector<int> free_of(const CpuSet& cpus, const CpuSet& taken) const;

 private:
  int core_of(int cpu) const {
    return static_cast<std::size_t>(cpu) < core_of_.size() ? core_of_[static_cast<std::size_t>(cpu)] : cpu;
  }
  std::vector<int> core_of_;  ///< by its first CPU; CPUs beyond are cores of their own
};

}  // namespace pinion::node
