#include "node/cores.h"

#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <string>

namespace pinion::node {

namespace {

struct KernelSet {
  alignas(cpu_set_t) unsigned char bytes[kMostCpus / 8] = {};
  cpu_set_t* get() { return reinterpret_cast<cpu_set_t*>(bytes); }
};

}  // namespace

CpuSet cpus_of(int thread) {
  KernelSet set;
  CpuSet cpus;
  if (::sched_getaffinity(thread, sizeof set.bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    cpus[static_cast<std::size_t>(cpu)] =
        CPU_ISSET_S(static_cast<std::size_t>(cpu), sizeof set.bytes, set.get());
  return cpus;
}

CpuSet cpus_of_own_threads() {
  CpuSet cpus;
  for (std::size_t cpu = 0; cpu < kMostCpus; ++cpu) cpus[cpu] = own_cpus().has(cpu);
  return cpus;
}

void run_on(const CpuSet& cpus) {
  KernelSet set;
  for (std::size_t cpu = 0; cpu < kMostCpus; ++cpu)
    if (cpus[cpu]) CPU_SET_S(cpu, sizeof set.bytes, set.get());
  ::sched_setaffinity(0, sizeof set.bytes, set.get());
}

Cores Cores::of_this_machine() {
  std::vector<int> core_of;
  const long cpus = ::sysconf(_SC_NPROCESSORS_CONF);
  for (int cpu = 0; cpu < cpus && cpu < kMostCpus; ++cpu) {
    std::ifstream siblings("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
    int first = cpu;
    siblings >> first;  // "0,4" or "0-1"
    core_of.push_back(siblings ? first : cpu);
  }
  return Cores(std::move(core_of));
}

int Cores::count(const CpuSet& cpus) const { return static_cast<int>(free_of(cpus, {}).size()); }

std::vector<int> Cores::free_of(const CpuSet& cpus, const CpuSet& taken) const {
  std::set<int> seen;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (taken[static_cast<std::size_t>(cpu)]) seen.insert(core_of(cpu));
  std::vector<int> free;
  for (int cpu = 0; cpu < kMostCpus; ++cpu)
    if (cpus[static_cast<std::size_t>(cpu)] && seen.insert(core_of(cpu)).second) free.push_back(cpu);
  return free;
}

}  // namespace pinion::node
