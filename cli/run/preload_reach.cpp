#include "cli/run/preload_reach.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/plain_file.h"
#include "cli/run/forward.h"

namespace pinion::cli {

namespace {

bool is_executable(const std::string& file) {
  struct stat status {};
  return ::stat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(file.c_str(), X_OK) == 0;
}

}  // namespace

std::string found_by_path(const std::string& name) {
  if (name.find('/') != std::string::npos) return is_executable(name) ? name : "";
  const char* const path = std::getenv("PATH");
  std::istringstream directories(path ? path : "");
  for (std::string directory; std::getline(directories, directory, ':');)
    if (const std::string file = (directory.empty() ? "." : directory) + "/" + name; is_executable(file))
      return file;
  return {};
}

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

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

CommandLine split_at_blanks(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

bool is_shell(const std::string& name) { return is_one_of(name, {"sh", "bash", "dash", "ksh", "zsh"}); }

/// Returns the lines of a shell's script; none for other files. Variables in them stay as they are.
std::vector<std::string> script_lines(const std::string& file) {
  constexpr std::size_t kMostBytes = 64 << 10;
  std::string text(kMostBytes, '\0');
  const int descriptor = open_named_file(file);
  if (descriptor < 0) return {};
  const ssize_t bytes = ::read(descriptor, text.data(), text.size());
  ::close(descriptor);
  text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  if (lines.empty() || !lines.front().starts_with("#!")) return {};
  const CommandLine interpreter = split_at_blanks(lines.front().substr(2));
  const bool is_shells = std::any_of(interpreter.begin(), interpreter.end(), [](const std::string& word) {
    return is_shell(std::filesystem::path(word).filename());
  });
  if (!is_shells) return {};
  lines.erase(lines.begin());
  std::erase_if(
      lines, [](const std::string& line) { return split_at_blanks(line + " #").front().starts_with("#"); });
  return lines;
}

/// Appends the files of the programs that the words start. A launcher's own words are options, numbers and
/// names: its program is the first word behind it that names an executable file.
void append_programs(const CommandLine& words, std::vector<std::string>& files) {
  const auto program = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return !word.starts_with("-") && !found_by_path(word).empty();
  });
  if (program == words.end()) return;
  files.push_back(found_by_path(*program));
  const std::string name = std::filesystem::path(*program).filename();
  if (is_shell(name)) {
    const auto option = std::find_if(program + 1, words.end(), [](const std::string& word) {
      return word.starts_with("-") && !word.starts_with("--") && word.ends_with("c");
    });
    if (words.end() - option > 1) append_programs(split_at_blanks(*(option + 1)), files);
    return;
  }
  if (!is_launcher({name}) && !is_one_of(name, {"env", "nice", "ionice", "taskset", "numactl", "timeout",
                                                "stdbuf", "nohup", "setsid", "chrt", "time", "strace"}))
    return;
  // Between colons are the programs of one job.
  for (auto from = program; from != words.end();) {
    const auto colon = std::find(++from, words.end(), ":");
    append_programs({from, colon}, files);
    from = colon;
  }
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

/// A clause, such as "it is linked statically, ...". Empty for files that are reached as far as they show,
/// for scripts, and for files that cannot be read.
std::string why_unreached(const std::string& file, const Program& program) {
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

}  // namespace

std::vector<Unreached> unreached_programs(const CommandLine& command) {
  std::vector<std::string> files;
  if (!found_by_path(command.front()).empty()) append_programs(command, files);
  const std::size_t named = files.size();
  for (std::size_t i = 0; i < named; ++i)
    for (const std::string& line : script_lines(files[i])) append_programs(split_at_blanks(line), files);
  std::vector<Unreached> unreached;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (std::find(files.begin(), files.begin() + static_cast<std::ptrdiff_t>(i), files[i]) !=
        files.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const Program program(files[i]);
    const std::string why = why_unreached(files[i], program);
    if (why.empty()) continue;
    // A script may start others that are reached.
    const bool is_foreign = i < named && !why_unloadable(program.elf).empty();
    unreached.push_back({fmt::format("{}: {}", files[i], why), is_foreign});
  }
  return unreached;
}

}  // namespace pinion::cli
