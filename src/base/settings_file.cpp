#include "base/settings_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/plain_file.h"

namespace pinion {

namespace {

/// A file of settings has tens of lines.
constexpr std::size_t kLargestFile = 1 << 20;
constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

/// A `#` within a value, as in `log=/tmp/run#3`, is a part of it.
std::string_view without_comment(std::string_view line) {
  for (std::size_t at = line.find('#'); at != std::string_view::npos; at = line.find('#', at + 1)) {
    if (at == 0 || kBlanks.find(line[at - 1]) != std::string_view::npos) return line.substr(0, at);
  }
  return line;
}

Error read_whole(const std::string& path, std::string& text) {
  const int file = open_named_file(path);
  if (file < 0) return Error::make(errno, "%s: %s", path.c_str(), open_failure(errno));
  const bool is_read = read_up_to(file, kLargestFile + 1, text);
  const int code = errno;
  ::close(file);
  if (!is_read) return Error::make(code, "%s: %s", path.c_str(), std::strerror(code));
  if (text.size() > kLargestFile)
    return Error::make(EFBIG, "%s: more than 1 MiB, so not a file of settings", path.c_str());
  return {};
}

Error take_line(std::string_view line, const TakeSetting& take) {
  line = trimmed(without_comment(trimmed(line)));
  if (line.empty()) return {};
  const auto is_control = [](unsigned char c) { return (c < ' ' && c != '\t') || c == 0x7f; };
  if (std::any_of(line.begin(), line.end(), is_control))
    return Error::make(EINVAL, "not a line of text; valid is name=value");
  const auto equals = line.find('=');
  if (equals == std::string_view::npos || equals == 0)
    return Error::make(EINVAL, "'%s' is not of the form name=value", std::string(line.substr(0, 80)).c_str());
  const std::string_view value = trimmed(line.substr(equals + 1));
  if (!value.empty() && (value.front() == '"' || value.front() == '\''))
    return Error::make(EINVAL, "%s: a value is written without quotation marks",
                       std::string(value.substr(0, 80)).c_str());
  return take(trimmed(line.substr(0, equals)), value);
}

}  // namespace

Error read_settings(const std::string& path, const TakeSetting& take) {
  std::string text;
  if (Error error = read_whole(path, text)) return error;
  std::string_view rest = text;
  for (unsigned number = 1; !rest.empty(); ++number) {
    const auto end = rest.find('\n');
    const Error error = take_line(rest.substr(0, end), take);
    if (error) return Error::make(error.code, "%s:%u: %s", path.c_str(), number, error.message);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
  }
  return {};
}

}  // namespace pinion
