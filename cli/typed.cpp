#include "cli/typed.h"

#include <fmt/format.h>

#include <algorithm>

namespace pinion::cli {

namespace {

/// "a=b,c=d" as flags.
std::string as_flags(const std::string& options) {
  std::string text;
  for (std::size_t at = 0; at < options.size();) {
    const std::size_t end = std::min(options.find(',', at), options.size());
    const std::string setting = options.substr(at, end - at);
    const std::size_t equals = setting.find('=');
    text += fmt::format(" --{} {}", setting.substr(0, equals), quoted(setting.substr(equals + 1)));
    at = end + 1;
  }
  return text;
}

}  // namespace

std::string quoted(const CommandLine& command) {
  std::string text;
  for (const std::string& word : command) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::string typed_run(const Options& options) {
  return "pinion run" + as_flags(format_options(options)) + " -- ";
}

}  // namespace pinion::cli
