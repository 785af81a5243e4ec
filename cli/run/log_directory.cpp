#include "cli/run/log_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/command.h"
#include "placement/arena_figures.h"
#include "placement/figures_file.h"
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

TemporaryLogDirectory::TemporaryLogDirectory() {
  // Batch systems set TMPDIR on nodes that may lack it.
  std::error_code missing;
  for (const fs::path& place : {fs::temp_directory_path(missing), fs::path("/tmp")}) {
    path_ = (place / "pinion-run-XXXXXX").string();
    if (!missing && ::mkdtemp(path_.data())) return;
    missing.clear();
  }
  throw Failure(fmt::format("/tmp: {}; name a place for the run's logs: --log DIR", std::strerror(errno)));
}

TemporaryLogDirectory::~TemporaryLogDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace pinion::cli
