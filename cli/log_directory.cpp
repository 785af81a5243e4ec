#include "log_directory.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "command.h"

namespace pinion::cli {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse(const std::string& path, const fs::filesystem_error& error) {
  throw UsageError(fmt::format("log directory {}: {}", path, error.code().message()));
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

std::string prepare_log_directory(const std::string& path) {
  const std::string directory = make_log_directory(path);
  try {
    std::vector<fs::path> older;
    for (const auto& entry : fs::directory_iterator(directory))
      if (entry.is_regular_file() &&
          (entry.path().extension() == ".plog" || entry.path().extension() == ".hugepages" ||
           entry.path().extension() == ".arena"))
        older.push_back(entry.path());
    for (const fs::path& file : older) fs::remove(file);
  } catch (const fs::filesystem_error& error) {
    refuse(path, error);
  }
  return directory;
}

TemporaryLogDirectory::TemporaryLogDirectory() {
  path_ = (fs::temp_directory_path() / "pinion-run-XXXXXX").string();
  if (!::mkdtemp(path_.data())) throw Failure(fmt::format("{}: {}", path_, std::strerror(errno)));
}

TemporaryLogDirectory::~TemporaryLogDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace pinion::cli
