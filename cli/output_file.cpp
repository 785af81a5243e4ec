#include "cli/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cli/command.h"

namespace pinion::cli {

void write_text(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool replaces = !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
  // A link keeps its place.
  const fs::path place = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : fs::path(path);
  const std::string written =
      replaces ? fmt::format("{}.{}.new", place.string(), ::getpid()) : std::string(path);
  std::FILE* const file = std::fopen(written.c_str(), "w");
  if (!file) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
  const bool is_short = std::fwrite(text.data(), 1, text.size(), file) != text.size();
  if ((std::fclose(file) != 0 || is_short ||
       (replaces && std::rename(written.c_str(), place.c_str()) != 0))) {
    const int code = errno;
    if (replaces) std::remove(written.c_str());
    throw Failure(fmt::format("{}: {}", path, std::strerror(code)));
  }
}

}  // namespace pinion::cli
