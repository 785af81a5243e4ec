#include "cli/doctor/interconnects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "cli/doctor/caches_above.h"
#include "cli/system_files.h"
#include "device/node_devices.h"
#include "lease/acts.h"

namespace pinion::cli {

namespace {

bool starts_with_any(const std::string& text, std::initializer_list<const char*> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const char* begin) { return text.rfind(begin, 0) == 0; });
}

/// Omni-Path has ports of its own among those of libibverbs; its MPIs use PSM2 instead.
bool is_omni_path(const std::string& device) { return starts_with_any(device, {"hfi1_"}); }

std::string port_text(const NodePort& port) {
  return fmt::format("{} port {} {}{}", port.device, port.number, port.state,
                     port.link_layer.empty() ? "" : ", " + port.link_layer);
}

/// The first line of a command's output that has a word; empty where there is none.
std::string line_with(const std::string& command, const char* word) {
  std::FILE* const pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string found;
  for (char line[512]; std::fgets(line, sizeof line, pipe) != nullptr;)
    if (found.empty() && std::string(line).find(word) != std::string::npos) found = line;
  ::pclose(pipe);
  return found.substr(0, found.find_last_not_of(" \n") + 1);
}

/// "Open MPI 4.1.4", "MPICH 4.0.2", as their launchers call themselves.
std::set<std::string> installed_mpis() {
  std::set<std::string> mpis;
  for (const char* launcher : {"mpirun.openmpi", "mpirun.mpich", "mpirun"}) {
    const std::string version = fmt::format("{} --version </dev/null", launcher);
    if (const std::string line = line_with(version, "Open MPI"); !line.empty())
      mpis.insert("Open MPI " + line.substr(line.find_last_of(' ') + 1));
    else if (const std::string of_hydra = line_with(version, "Version:"); !of_hydra.empty())
      mpis.insert("MPICH (hydra) " + of_hydra.substr(of_hydra.find_last_of(' ') + 1));
  }
  return mpis;
}

std::string transports() {
  std::string names;
  for (const CacheAbove& cache : caches_above())
    if (cache.library != "Open MPI") names += (names.empty() ? "" : " or ") + cache.library;
  return names.empty() ? "libibverbs" : names;
}

/// A choice of the user's that leaves the device out; empty: none.
std::string left_out_by() {
  const char* const tls = std::getenv("UCX_TLS");
  if (tls == nullptr) return {};
  const std::string list = "," + std::string(tls) + ",";
  for (const char* name : {",all,", ",ib,", ",rc", ",dc", ",ud"})
    if (list.find(name) != std::string::npos || list[1] == '^') return {};
  return fmt::format("UCX_TLS={}", tls);
}

Finding beyond(const char* name, const char* how) {
  return {fmt::format("interconnect {}", name), fmt::format("{}; {}", kMeasuredOnly, how), {}};
}

}  // namespace

Finding what_acts() {
  const std::vector<NodePort> ports = node_ports();
  if (ports.empty())
    return {
        "acts", fmt::format("{}. This node has no RDMA device (/sys/class/infiniband)", kMeasuredOnly), {}};
  std::string all;
  for (const NodePort& port : ports) all += (all.empty() ? "" : "; ") + port_text(port);
  if (!has_active_port())
    return {"acts", fmt::format("{}. No RDMA port is active: {}", kMeasuredOnly, all),
            Cure{Gain::acting, "Pinion measures, and saves nothing", Who::admin,
                 "`ibv_devinfo` and `rdma link` show the port's fault: a cable, a subnet manager"}};
  if (const std::string why = closed_to_programs(); !why.empty())
    return {"acts", fmt::format("{}. {}: {}", kMeasuredOnly, all, why),
            Cure{Gain::acting, "Pinion measures, and saves nothing", Who::admin,
                 "give the container /dev/infiniband, or the user rights to it"}};
  return {"acts",
          fmt::format(
              "below the libraries of programs that register memory with {}; others are measured only", all),
          {}};
}

std::vector<Finding> what_acts_by_library() {
  std::vector<Finding> findings;
  const bool reachable = reaches_nic();
  const std::string out = left_out_by();
  for (const std::string& mpi : installed_mpis()) {
    if (!reachable)
      findings.push_back({mpi, kMeasuredOnly, {}});
    else if (!out.empty())
      findings.push_back({mpi, fmt::format("{}, as {} leaves the device out", kMeasuredOnly, out),
                          Cure{Gain::acting, "transfers pass the device by", Who::user,
                               fmt::format("unset {}", out.substr(0, out.find('=')))}});
    else
      findings.push_back({mpi,
                          fmt::format("over {} with the device: below it; over TCP or shared memory: {}",
                                      transports(), kMeasuredOnly),
                          {}});
  }
  const std::vector<NodePort> ports = node_ports();
  if (!names_in("/sys/class/cxi").empty())
    findings.push_back(beyond("Slingshot",
                              "libfabric's cxi provider registers by itself; FI_MR_CACHE_MAX_SIZE and "
                              "FI_MR_CACHE_MAX_COUNT bound its cache"));
  if (std::any_of(ports.begin(), ports.end(), [](const NodePort& p) { return is_omni_path(p.device); }))
    findings.push_back(
        beyond("Omni-Path",
               "PSM2 registers by the hfi1 driver; its module parameter cache_size (MB) bounds "
               "its cache"));
  if (!names_in("/sys/bus/pci/drivers/efa").empty())
    findings.push_back({"interconnect EFA",
                        "untried; libfabric's efa provider keeps its registrations in its own cache; "
                        "FI_EFA_MR_MAX_CACHED_SIZE and FI_EFA_MR_MAX_CACHED_COUNT bound it",
                        {}});
  return findings;
}

}  // namespace pinion::cli
