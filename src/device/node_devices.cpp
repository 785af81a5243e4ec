#include "device/node_devices.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "monitor/own_process.h"

namespace pinion {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed))
    entries.push_back(entry->path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

const char* elsewhere() { return std::getenv("PINION_TEST_INFINIBAND"); }

std::string line_of(const fs::path& file) {
  std::string line;
  KernelText(file.c_str()).line(line);
  return line;
}

}  // namespace

std::vector<NodePort> node_ports() {
  std::vector<NodePort> ports;
  for (const fs::path& device : entries_of(elsewhere() ? elsewhere() : "/sys/class/infiniband")) {
    for (const fs::path& port : entries_of(device / "ports")) {
      std::string state = line_of(port / "state");  // "4: ACTIVE"
      state.erase(0, state.find(' ') + 1);
      ports.push_back({device.filename(), port.filename(), std::move(state), line_of(port / "link_layer")});
    }
  }
  return ports;
}

bool has_active_port() {
  const std::vector<NodePort> ports = node_ports();
  return std::any_of(ports.begin(), ports.end(), [](const NodePort& port) { return port.active(); });
}

std::string closed_to_programs() {
  std::vector<fs::path> files =
      entries_of(elsewhere() ? fs::path(elsewhere()) / "dev" : fs::path("/dev/infiniband"));
  std::erase_if(files, [](const fs::path& file) { return !file.filename().string().starts_with("uverbs"); });
  if (files.empty()) return "there is no /dev/infiniband/uverbs* here";
  const bool open = std::any_of(files.begin(), files.end(), [](const fs::path& file) {
    return ::access(file.c_str(), R_OK | W_OK) == 0;
  });
  return open ? "" : "/dev/infiniband/uverbs* may not be opened by this user";
}

std::string gpu_file() {
  const fs::path directory = elsewhere() ? fs::path(elsewhere()) / "gpu" : fs::path("/dev");
  for (const char* const name : {"nvidiactl", "kfd"})
    if (::access((directory / name).c_str(), F_OK) == 0) return directory / name;
  return "";
}

bool reaches_nic() { return has_active_port() && closed_to_programs().empty(); }

}  // namespace pinion
