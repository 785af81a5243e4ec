#include "cli/run/preload_reach.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/plain_file.h"

namespace pinion::cli {

namespace {

/// The kernel informs the dynamic linker that privileges come with the file (AT_SECURE).
bool gives_privileges(const std::string& file, const struct stat& status) {
  if ((status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid()) return true;
  if ((status.st_mode & S_ISGID) != 0 && status.st_gid != ::getegid()) return true;
  return ::geteuid() != 0 && ::getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

/// A file of this machine's kind, mapped. Its entries may point beyond its end.
class ElfFile {
 public:
  ElfFile(int descriptor, std::size_t bytes) : bytes_(bytes) {
    void* const at = bytes ? ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
    content_ = at == MAP_FAILED ? nullptr : static_cast<const char*>(at);
    const auto header = read<ElfW(Ehdr)>(0);
    if (header && std::memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
        header->e_ident[EI_CLASS] == (sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32))
      header_ = header;
  }
  ~ElfFile() {
    if (content_) ::munmap(const_cast<char*>(content_), bytes_);
  }
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  bool is_program() const { return header_ && (header_->e_type == ET_EXEC || header_->e_type == ET_DYN); }

  /// A program of this machine's other kind; its header is of another form.
  bool is_32_bit() const {
    const auto mark = read<std::array<unsigned char, EI_NIDENT>>(0);
    return mark && std::memcmp(mark->data(), ELFMAG, SELFMAG) == 0 && (*mark)[EI_CLASS] == ELFCLASS32;
  }

  /// Returns the path of the dynamic loader; nothing: the file is linked statically.
  std::optional<std::string> interpreter() const {
    for (std::size_t i = 0; i < header_->e_phnum; ++i) {
      const auto segment = read<ElfW(Phdr)>(header_->e_phoff + i * sizeof(ElfW(Phdr)));
      if (!segment || segment->p_type != PT_INTERP) continue;
      const bool is_inside = segment->p_offset < bytes_ && segment->p_filesz <= bytes_ - segment->p_offset;
      if (!is_inside) return "";
      const char* const path = content_ + segment->p_offset;
      return std::string(path, ::strnlen(path, segment->p_filesz));
    }
    return std::nullopt;
  }

  bool defines(std::string_view name) const {
    for (std::size_t i = 0; i < header_->e_shnum; ++i) {
      const auto table = section(i);
      if (table && (table->sh_type == SHT_SYMTAB || table->sh_type == SHT_DYNSYM) && defines(*table, name))
        return true;
    }
    return false;
  }

 private:
  template <class T>
  std::optional<T> read(std::size_t at) const {
    if (!content_ || at > bytes_ || bytes_ - at < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, content_ + at, sizeof value);
    return value;
  }
  std::optional<ElfW(Shdr)> section(std::size_t i) const {
    return read<ElfW(Shdr)>(header_->e_shoff + i * sizeof(ElfW(Shdr)));
  }
  bool defines(const ElfW(Shdr) & table, std::string_view name) const {
    const auto names = section(table.sh_link);
    if (!names) return false;
    for (std::size_t at = 0; at + sizeof(ElfW(Sym)) <= table.sh_size; at += sizeof(ElfW(Sym))) {
      const auto symbol = read<ElfW(Sym)>(table.sh_offset + at);
      if (!symbol) return false;
      const std::size_t begin = names->sh_offset + symbol->st_name;
      if (symbol->st_shndx != SHN_UNDEF && begin < bytes_ && name.size() < bytes_ - begin &&
          name == std::string_view(content_ + begin, name.size()) && content_[begin + name.size()] == 0)
        return true;
    }
    return false;
  }

  std::size_t bytes_;
  const char* content_ = nullptr;
  std::optional<ElfW(Ehdr)> header_;
};

/// Finds the program as execvp() does; empty if there is none.
std::string found_by_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path ? path : "");
  for (std::string directory; std::getline(directories, directory, ':');) {
    const std::string file = (directory.empty() ? "." : directory) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

/// A file's status and its content; the latter is empty where the file cannot be read.
struct Program {
  explicit Program(const std::string& file) : Program(open_named_file(file)) {}

  struct stat status {};
  ElfFile elf;

 private:
  explicit Program(int file)
      : elf(file, ::fstat(file, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0) {
    if (file >= 0) ::close(file);
  }
};

std::string why_unloadable(const ElfFile& elf) {
  if (elf.is_32_bit()) return "it is a 32-bit program: it runs without Pinion";
  const std::string loader = elf.is_program() ? elf.interpreter().value_or("") : "";
  if (loader.find("/ld-musl-") == std::string::npos) return {};
  return fmt::format("its C library is musl ({}), Pinion's is glibc: it runs without Pinion", loader);
}

/// "FILE: WHY" for each of the command's programs for which there is a reason.
std::vector<std::string> explained(const CommandLine& command,
                                   const std::function<std::string(const std::string&)>& why) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < command.size(); ++i) {
    if (i > 0 && command[i].find('/') == std::string::npos) continue;
    const std::string file = found_by_path(command[i]);
    if (file.empty() || ::access(file.c_str(), X_OK) != 0) continue;
    if (const std::string text = why(file); !text.empty()) lines.push_back(fmt::format("{}: {}", file, text));
  }
  return lines;
}

}  // namespace

std::string why_unreached(const std::string& file) {
  const Program program(file);
  if (std::string why = why_unloadable(program.elf); !why.empty() || !program.elf.is_program()) return why;
  if (gives_privileges(file, program.status))
    return "it is set-user-ID, set-group-ID or has file capabilities, so the loader ignores LD_PRELOAD: "
           "Pinion does nothing there";
  if (!program.elf.interpreter())
    return "it is linked statically, so no library is preloaded: Pinion does nothing there";
  if (program.elf.defines("ibv_cmd_reg_mr"))
    return "it has a libibverbs of its own inside: its registrations are not seen";
  return {};
}

std::vector<std::string> unreached_programs(const CommandLine& command) {
  return explained(command, why_unreached);
}

std::vector<std::string> unloadable_programs(const CommandLine& command) {
  return explained(command, [](const std::string& file) { return why_unloadable(Program(file).elf); });
}

}  // namespace pinion::cli
