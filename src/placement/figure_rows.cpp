#include "placement/figure_rows.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/plain_file.h"

namespace pinion {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargestFile = 64 << 10;

bool is_number(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// HOST.PID.EXTENSION
bool has_name_of_figures(const fs::path& path, const char* extension) {
  const std::string process = path.stem().extension().string();
  return path.extension() == extension && !process.empty() && is_number(process.substr(1));
}

bool take_line(std::string_view line, const FigureNames& names, FigureValues& values) {
  const auto equals = line.find('=');
  if (equals == std::string_view::npos || !is_number(line.substr(equals + 1))) return false;
  const auto name = std::find(names.begin(), names.end(), line.substr(0, equals));
  if (name == names.end()) return false;
  std::uint64_t& value = values[static_cast<std::size_t>(name - names.begin())];
  return std::from_chars(line.data() + equals + 1, line.data() + line.size(), value).ec == std::errc{};
}

}  // namespace

void write_figure_lines(const char* directory, const char* extension, const FigureNames& names,
                        const FigureValues& values) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string path = std::string(directory) + "/" + host + "." + std::to_string(::getpid()) + extension;
  int file = create_plain_file(path);
  if (file < 0 && errno == EEXIST && read_figure_lines(path, extension, names))
    file = replace_plain_file(path);  // of an earlier process of this number
  if (file < 0) return;
  std::string lines;
  for (std::size_t i = 0; i < names.size(); ++i)
    lines += std::string(names[i]) + "=" + std::to_string(values[i]) + "\n";
  if (!write_whole(file, lines)) ::unlink(path.c_str());
  ::close(file);
}

std::optional<FigureValues> read_figure_lines(const std::string& path, const char* extension,
                                              const FigureNames& names) {
  if (!has_name_of_figures(path, extension)) return std::nullopt;
  const int file = open_plain_file(path, O_RDONLY);
  if (file < 0) return std::nullopt;
  std::string text;
  const bool is_read = read_up_to(file, kLargestFile, text);
  ::close(file);
  if (!is_read || text.empty()) return std::nullopt;
  FigureValues values(names.size());
  for (std::string_view rest = text; !rest.empty();) {
    const auto end = rest.find('\n');
    if (end == std::string_view::npos || !take_line(rest.substr(0, end), names, values)) return std::nullopt;
    rest.remove_prefix(end + 1);
  }
  return values;
}

std::vector<std::string> files_in(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code failed;
  for (fs::directory_iterator entry(directory, failed), end; !failed && entry != end; entry.increment(failed))
    files.push_back(entry->path().string());
  return files;
}

}  // namespace pinion
