#include "launch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

namespace gas {

namespace {

/// For processes of this launch alone.
class Directory {
 public:
  Directory() {
    std::string name = (std::filesystem::temp_directory_path() / "gas-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  std::string job() const { return path_ + "/job"; }

 private:
  std::string path_;
};

/// Reads the launcher's variables. The library reads the same ones; the heap's size is needed before it
/// opens.
bool launched(Place& place) {
  static constexpr const char* kVariables[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                  {"PMI_RANK", "PMI_SIZE"},
                                                  {"SLURM_PROCID", "SLURM_NTASKS"}};
  for (const auto& [rank, size] : kVariables) {
    const char* const number = std::getenv(rank);
    const char* const count = std::getenv(size);
    if (number == nullptr || count == nullptr) continue;
    place.process = static_cast<unsigned>(std::atoi(number));
    place.processes = static_cast<unsigned>(std::atoi(count));
    return true;
  }
  return false;
}

/// The first failure's exit status.
int wait_for(std::vector<pid_t>& children) {
  int result = 0;
  while (!children.empty()) {
    int status = 0;
    const pid_t ended = ::wait(&status);
    if (ended < 0) return 1;
    children.erase(std::remove(children.begin(), children.end(), ended), children.end());
    if (status == 0 || result != 0) continue;
    result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    for (const pid_t child : children) ::kill(child, SIGKILL);
  }
  return result;
}

}  // namespace

int launch(unsigned processes, const std::function<int(const Place&)>& part) {
  Place place;
  if (processes == 0 && launched(place)) return part(place);
  const Directory directory;
  place.directory = directory.job();
  if (processes == 0) return part(place);
  place.processes = processes;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (place.process = 0; place.process < processes; ++place.process) {
    const pid_t child = ::fork();
    if (child == 0) {
      const int status = part(place);
      std::fflush(nullptr);
      ::_exit(status);
    }
    if (child > 0) children.push_back(child);
  }
  const bool all = children.size() == processes;
  if (!all)
    for (const pid_t child : children) ::kill(child, SIGKILL);
  const int status = wait_for(children);
  return all ? status : 1;
}

}  // namespace gas
