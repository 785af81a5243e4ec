#include "cli/system_files.h"

#include <sys/auxv.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>

#include "cli/command.h"

namespace pinion::cli {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string field_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1) != key) continue;
    const auto value = line.find_first_not_of(" \t", colon + 1);
    return value == std::string::npos ? "" : line.substr(value);
  }
  return {};
}

std::string chosen_word(const std::string& text) {
  const auto open = text.find('['), close = text.find(']');
  return open == std::string::npos || close < open ? "" : text.substr(open + 1, close - open - 1);
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code failed;
  for (std::filesystem::directory_iterator entry(directory, failed), end; !failed && entry != end;
       entry.increment(failed))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

namespace {

std::filesystem::path this_executable() {
  std::error_code failed;
  std::filesystem::path file = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) return file;
  // The kernel's copy of the name by which it was started, relative to the directory of that time.
  file = std::filesystem::canonical(reinterpret_cast<const char*>(::getauxval(AT_EXECFN)), failed);
  if (failed) throw Failure("/proc is missing here, by which `pinion` finds its own files");
  return file;
}

}  // namespace

std::filesystem::path installation() {
  const auto directory = this_executable().parent_path();
  const bool is_libexec = directory.filename() == "pinion" && directory.parent_path().filename() == "libexec";
  return is_libexec ? directory.parent_path().parent_path() : directory.parent_path();
}

std::string pinion_command() {
  const auto self = this_executable();
  return self.parent_path().parent_path() == installation() ? self.string()
                                                            : (installation() / "bin" / "pinion").string();
}

}  // namespace pinion::cli
