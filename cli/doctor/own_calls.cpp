#include "cli/doctor/own_calls.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <gnu/lib-names.h>
#include <link.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "cli/command.h"
#include "cli/doctor/monitors.h"
#include "monitor/loader.h"
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

std::string own_call_in(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::string content{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  ElfW(Ehdr) header{};
  if (content.size() < sizeof header) throw UsageError(fmt::format("{}: no program or library", file));
  std::memcpy(&header, content.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(ElfW(Phdr)))
    throw UsageError(fmt::format("{}: no program or library of this machine", file));
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) segment{};
    const std::size_t at = header.e_phoff + i * sizeof segment;
    if (at > content.size() || content.size() - at < sizeof segment) break;
    std::memcpy(&segment, content.data() + at, sizeof segment);
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_X) == 0 || segment.p_offset > content.size() ||
        content.size() - segment.p_offset < segment.p_filesz)
      continue;
    const auto* const code = reinterpret_cast<const std::byte*>(content.data()) + segment.p_offset;
    if (const auto call = find_own_call(code, segment.p_filesz))
      return fmt::format("{} calls {} without libc (at offset {:#x})", file, call->name,
                         segment.p_offset + call->offset);
  }
  return {};
}

}  // namespace

std::vector<std::string> own_calls_here() {
  while (!look_at_loaded_code(~std::size_t{0}).complete) {
  }
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
