#include "cli/run/log_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/command.h"
#include "placement/arena_figures.h"
#include "placement/figures_file.h"
#include "runlog/format.h"
#include "runlog/node_file.h"

namespace pinion::cli {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const fs::filesystem_error& error) {
  throw UsageError(fmt::format("log directory {}: {}", path, error.code().message()));
}

/// True for a file of an earlier run. Throws UsageError if another program's file has a log's name.
bool is_left_by_a_run(const fs::path& file) {
  if (file.extension() != ".plog")
    return is_placement_figures(file.string()) || is_arena_figures(file.string());
  if (runlog::is_written_to(file.string()))
    throw UsageError(
        fmt::format("{}: a run that goes on writes there; name another directory: --log DIR", file.string()));
  if (runlog::is_log(file.string())) return true;
  throw UsageError(
      fmt::format("{}: not a log of Pinion; name a directory for logs alone: --log DIR", file.string()));
}

/// Makes the first folder of these names that is missing: run-1, run-2, ...
fs::path new_folder(const std::string& directory) {
  for (int number = 1;; ++number) {
    const fs::path folder = fs::path(directory) / fmt::format("run-{}", number);
    if (fs::create_directory(folder)) return folder;
  }
}

}  // namespace

std::string make_log_directory(const std::string& path) {
  try {
    const fs::path directory = fs::absolute(path).lexically_normal();
    fs::create_directories(directory);
    return directory.string();
  } catch (const fs::filesystem_error& error) {
    refuse(path, error);
  }
}

std::string prepare_log_directory(const std::string& path, Earlier earlier) {
  const std::string directory = make_log_directory(path);
  try {
    std::vector<fs::path> older;
    for (const auto& entry : fs::directory_iterator(directory))
      if (is_left_by_a_run(entry.path())) older.push_back(entry.path());
    if (older.empty()) return directory;
    if (earlier == Earlier::kept) {
      const fs::path folder = new_folder(directory);
      for (const fs::path& file : older) fs::rename(file, folder / file.filename());
    } else {
      for (const fs::path& file : older) fs::remove(file);
    }
  } catch (const fs::filesystem_error& error) {
    refuse(path, error);
  }
  return directory;
}

namespace {

constexpr const char* kTemporary = "pinion-run-";

/// Opens a directory of this user's alone, and no link. Returns -1 for anything else.
int open_own_directory(const fs::path& path) {
  const int directory = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return -1;
  struct stat status {};
  if (::fstat(directory, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0)
    return directory;
  ::close(directory);
  return -1;
}

/// Whether a run of this user on this host has left the file, and nobody writes to it. Elsewhere locks may
/// not be seen.
bool is_of_a_dead_run(const fs::path& file) {
  char host[sizeof runlog::ProcessHeader::host] = {};
  ::gethostname(host, sizeof host - 1);
  struct stat status {};
  const bool plain = ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
                     status.st_uid == ::geteuid() && status.st_nlink == 1;
  if (!plain ||
      (file.extension() == ".plog" && !file.filename().string().starts_with(std::string(host) + '.')))
    return false;
  try {
    return is_left_by_a_run(file);
  } catch (const UsageError&) {
    return false;
  }
}

/// Whether nothing else is in it. Throws fs::filesystem_error.
bool has_a_dead_run_alone(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const bool folder = entry.is_directory() && !entry.is_symlink() &&
                        entry.path().filename().string().starts_with("run-");  // of an earlier job in it
    if (folder ? !has_a_dead_run_alone(entry.path()) : !is_of_a_dead_run(entry.path())) return false;
  }
  return true;
}

/// Removes what runs of this user have left there as they were killed. A directory with anything else in it
/// stays as it is.
void clear_dead_runs(const fs::path& place) try {
  for (const auto& entry : fs::directory_iterator(place)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kTemporary)) continue;
    const int directory = open_own_directory(entry.path());
    if (directory < 0) continue;
    std::error_code ignored;
    if (::flock(directory, LOCK_EX | LOCK_NB) == 0 && has_a_dead_run_alone(entry.path()))
      fs::remove_all(entry.path(), ignored);
    ::close(directory);
  }
} catch (const fs::filesystem_error&) {
  // Another start clears it at the same time, or it cannot be read.
}

/// Makes one there, and locks it. Empty: it cannot be made.
std::string make_temporary(const fs::path& place, int& lock) {
  for (;;) {
    std::string path = (place / kTemporary).string() + "XXXXXX";
    if (!::mkdtemp(path.data())) return {};
    lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0 && errno == ENOENT) continue;  // another start has cleared it
    struct stat status {};
    if (lock < 0 || ::flock(lock, LOCK_SH) != 0 || ::fstat(lock, &status) != 0 || status.st_nlink != 0)
      return path;
    ::close(lock);
  }
}

}  // namespace

TemporaryLogDirectory::TemporaryLogDirectory() {
  // Batch systems set TMPDIR on nodes that may lack it.
  std::error_code missing;
  for (const fs::path& place : {fs::temp_directory_path(missing), fs::path("/tmp")}) {
    if (!missing) path_ = make_temporary(place, lock_);
    if (!path_.empty()) {
      clear_dead_runs(place);
      return;
    }
    missing.clear();
  }
  throw Failure(fmt::format("/tmp: {}; name a place for the run's logs: --log DIR", std::strerror(errno)));
}

TemporaryLogDirectory::~TemporaryLogDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

}  // namespace pinion::cli
