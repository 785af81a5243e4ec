#include "cli/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/plain_file.h"
#include "cli/command.h"

namespace pinion::cli {

namespace {

/// In a directory that all may write to, it may lead to any file of this user's.
bool is_link_of_another(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISLNK(status.st_mode) && status.st_uid != ::geteuid() &&
         status.st_uid != 0;
}

}  // namespace

void write_file(const std::string& path, const std::function<void(std::FILE*)>& write) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool replaces = !fs::exists(path, ignored) || fs::is_regular_file(path, ignored);
  // A link keeps its place.
  if (is_link_of_another(path)) throw UsageError(fmt::format("{}: a link of another user's", path));
  const fs::path place = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : fs::path(path);
  const std::string written =
      replaces ? fmt::format("{}.{}.new", place.string(), ::getpid()) : std::string(path);
  const int descriptor =
      replaces ? replace_plain_file(written, 0666) : ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  std::FILE* const file = descriptor < 0 ? nullptr : ::fdopen(descriptor, "w");
  if (!file) throw UsageError(fmt::format("{}: {}", path, std::strerror(errno)));
  try {
    write(file);
  } catch (...) {
    std::fclose(file);
    if (replaces) std::remove(written.c_str());
    throw;
  }
  const bool is_short = std::ferror(file) != 0;
  if ((std::fclose(file) != 0 || is_short ||
       (replaces && std::rename(written.c_str(), place.c_str()) != 0))) {
    const int code = errno;
    if (replaces) std::remove(written.c_str());
    throw Failure(fmt::format("{}: {}", path, std::strerror(code)));
  }
}

void write_text(const std::string& path, const std::string& text) {
  write_file(path, [&](std::FILE* file) { std::fwrite(text.data(), 1, text.size(), file); });
}

}  // namespace pinion::cli
