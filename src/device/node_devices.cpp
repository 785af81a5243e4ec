#include "device/node_devices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

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

std::string line_of(const fs::path& file) {
  std::string line;
  std::ifstream stream(file);
  std::getline(stream, line);
  return line;
}

}  // namespace

std::vector<NodePort> node_ports() {
  const char* const elsewhere = std::getenv("PINION_TEST_INFINIBAND");
  std::vector<NodePort> ports;
  for (const fs::path& device : entries_of(elsewhere ? elsewhere : "/sys/class/infiniband")) {
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

}  // namespace pinion
