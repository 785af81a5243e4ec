#include "cli/doctor/mpi_libraries.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>

#include "cli/run/preload_reach.h"

namespace pinion::cli {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr const char* kNames[] = {kOpenMpi, "libmpi.so.12", "libmpi_abi.so.1"};

/// The MPI library under the prefix of a program; empty: none. A virtual environment's interpreter is a link
/// into another prefix, which comes second.
fs::path mpi_beside(const std::string& program) {
  std::error_code error;
  for (const fs::path& file : {fs::absolute(program, error), fs::canonical(program, error)})
    for (const char* const name : kNames)
      if (const fs::path mpi = file.parent_path().parent_path() / "lib" / name; fs::exists(mpi, error))
        return mpi;
  return {};
}

/// The launcher of MPICH and its relatives.
bool is_hydra(const std::string& program) {
  std::error_code error;
  return fs::canonical(program, error).filename().string().find("hydra") != std::string::npos;
}

/// What the loader loads with the library: a file a line.
std::string loaded_with(const fs::path& library) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const pid_t child = ::fork();
  if (child == 0) {
    // Libraries may print as they are loaded.
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, STDOUT_FILENO);
    ::dup2(nowhere, STDERR_FILENO);
    link_map* map = nullptr;
    void* const handle = ::dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!handle || ::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) ::_exit(1);
    std::string files;
    for (; map; map = map->l_next) files += std::string(map->l_name) + "\n";
    ::_exit(::write(ends[1], files.data(), files.size()) < 0);
  }
  ::close(ends[1]);
  std::string files;
  char some[4096];
  for (ssize_t bytes; child > 0 && (bytes = ::read(ends[0], some, sizeof some)) > 0;)
    files.append(some, static_cast<std::size_t>(bytes));
  ::close(ends[0]);
  if (child > 0) ::waitpid(child, nullptr, 0);
  return files;
}

/// The file of this name among them, or beside the MPI, which opens it later (Intel's libfabric).
void choose(std::string& library, std::string_view loaded, const fs::path& folder) {
  const std::string ending = "/" + library + "\n";
  std::error_code error;
  if (const auto at = loaded.find(ending); at != std::string_view::npos) {
    const auto before = loaded.rfind('\n', at);
    const auto begin = before == std::string_view::npos ? 0 : before + 1;
    library = loaded.substr(begin, at + ending.size() - 1 - begin);
  } else if (fs::exists(folder / library, error)) {
    library = folder / library;
  }
}

}  // namespace

MpiLibraries mpi_libraries(const CommandLine& command) {
  MpiLibraries libraries;
  for (const std::string& word : command) {
    const std::string program = found_by_path(word);
    if (program.empty()) continue;
    if (is_hydra(program)) libraries.may_be_open_mpi = false;
    const fs::path mpi = mpi_beside(program);
    if (mpi.empty()) continue;
    const std::string loaded = loaded_with(mpi);
    choose(libraries.ucx, loaded, mpi.parent_path());
    choose(libraries.libfabric, loaded, mpi.parent_path());
    libraries.may_be_open_mpi = mpi.filename() == kOpenMpi;
    break;
  }
  return libraries;
}

}  // namespace pinion::cli
