#include "placement/figure_rows.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "base/settings_file.h"
#include "base/units.h"

namespace pinion {

void write_figure_lines(const char* directory, const char* extension, const std::string& lines) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string path = std::string(directory) + "/" + host + "." + std::to_string(::getpid()) + extension;
  std::FILE* const file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return;
  std::fputs(lines.c_str(), file);
  std::fclose(file);
}

std::uint64_t read_figure_lines(const std::string& directory, const char* extension,
                                const std::function<void(std::string_view, std::uint64_t)>& set) {
  namespace fs = std::filesystem;
  std::uint64_t files = 0;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    if (entry->path().extension() != extension) continue;
    const Error error =
        read_settings(entry->path().string(), [&](std::string_view name, std::string_view value) {
          set(name, parse_count(value).value_or(0));
          return Error{};
        });
    if (!error) ++files;
  }
  return files;
}

}  // namespace pinion
