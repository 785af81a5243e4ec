#include "cli/doctor/own_calls.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gnu/lib-names.h>
#include <link.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/plain_file.h"
#include "cli/command.h"
#include "cli/doctor/monitors.h"
#include "monitor/loader.h"
#include "monitor/mapping_reader.h"
#include "monitor/own_calls.h"

namespace pinion::cli {

namespace {

/// The dynamic linker only lists the libraries; `LD_TRACE_LOADED_OBJECTS` would run static programs.
std::string dynamic_linker() {
  Dl_info info{};
  return ::dladdr(loader_code(), &info) ? info.dli_fname : "";
}

/// "\tlibz.so.1 => /lib/libz.so.1 (0x...)" for each.
std::vector<std::string> libraries_of(const std::string& file) {
  std::istringstream lines(output_of({dynamic_linker(), "--list", file}, {}));
  std::vector<std::string> libraries;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("=> /");
    const auto end = line.rfind(" (0x");
    if (begin == std::string::npos || end == std::string::npos || end < begin) continue;
    const std::string path = line.substr(begin + 3, end - begin - 3);
    // Its calls are seen, and Pinion's are its own.
    const std::string name = std::filesystem::path(path).filename().string();
    if (name != LIBC_SO && name != LD_SO && !name.starts_with("libpinion")) libraries.push_back(path);
  }
  return libraries;
}

/// A program or library, read in parts: its file may be of any size, and need not be what its header says.
class CodeFile {
 public:
  explicit CodeFile(const std::string& path) : path_(path), file_(open_named_file(path)) {
    if (file_ < 0) throw UsageError(fmt::format("{}: {}", path, open_failure(errno)));
  }
  ~CodeFile() { ::close(file_); }
  CodeFile(const CodeFile&) = delete;
  CodeFile& operator=(const CodeFile&) = delete;

  /// Returns fewer bytes at the file's end.
  std::string part(std::uint64_t at, std::size_t bytes) const {
    std::string content;
    if (::lseek(file_, static_cast<off_t>(at), SEEK_SET) >= 0 && !read_up_to(file_, bytes, content))
      throw UsageError(fmt::format("{}: {}", path_, std::strerror(errno)));
    return content;
  }

  template <class T>
  std::optional<T> read(std::uint64_t at) const {
    const std::string content = part(at, sizeof(T));
    if (content.size() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, content.data(), sizeof value);
    return value;
  }

 private:
  const std::string& path_;
  int file_;
};

/// All code of the largest programs is a tenth of it.
constexpr std::uint64_t kMostCode = std::uint64_t{1} << 30;

std::string own_call_in(const std::string& path) {
  const CodeFile file(path);
  const auto header = file.read<ElfW(Ehdr)>(0);
  if (!header) throw UsageError(fmt::format("{}: no program or library", path));
  if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_phentsize != sizeof(ElfW(Phdr)))
    throw UsageError(fmt::format("{}: no program or library of this machine", path));
  std::uint64_t left = kMostCode;
  for (std::size_t i = 0; i < header->e_phnum; ++i) {
    const auto segment = file.read<ElfW(Phdr)>(header->e_phoff + i * sizeof(ElfW(Phdr)));
    if (!segment) break;
    if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
    if (segment->p_filesz > left)
      throw UsageError(fmt::format("{}: more than 1 GiB of code, so no program or library", path));
    left -= segment->p_filesz;
    const std::string code = file.part(segment->p_offset, segment->p_filesz);
    if (code.size() < segment->p_filesz) continue;  // cut off
    if (const auto call = find_own_call(reinterpret_cast<const std::byte*>(code.data()), code.size()))
      return fmt::format("{} calls {} without libc (at offset {:#x})", path, call->name,
                         segment->p_offset + call->offset);
  }
  return {};
}

}  // namespace

std::vector<std::string> own_calls_here() {
  while (!look_at_loaded_code(~std::size_t{0}).complete)
    if (!MappingReader().is_open()) return {"the loaded code is unknown: /proc is missing"};
  const Error found = own_calls_found();
  if (!found) return {};
  return {found.message};
}

std::vector<std::string> own_calls_of(const std::string& file) {
  std::vector<std::string> found;
  const auto look = [&](const std::string& object) {
    if (const std::string call = own_call_in(object); !call.empty()) found.push_back(call);
  };
  look(file);  // first: it may be a file of another kind
  for (const std::string& library : libraries_of(file)) look(library);
  return found;
}

}  // namespace pinion::cli
