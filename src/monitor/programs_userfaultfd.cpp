#include "monitor/programs_userfaultfd.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include <charconv>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "monitor/system_call.h"

namespace pinion {

namespace {

/// An entry as SYS_getdents64 writes it.
struct Entry {
  std::uint64_t inode;
  std::int64_t next;
  std::uint16_t bytes;
  std::uint8_t type;
  char name[1];
};

bool is_userfaultfd(long directory, const char* name) {
  constexpr std::string_view kTarget = "anon_inode:[userfaultfd]";
  char target[kTarget.size() + 1];
  const long bytes = raw_system_call(SYS_readlinkat, arguments_of(directory, name, target, sizeof target));
  return !is_error(bytes) && std::string_view(target, static_cast<std::size_t>(bytes)) == kTarget;
}

}  // namespace

bool program_has_userfaultfd(int own) {
  constexpr const char* kFiles = "/proc/thread-self/fd";
  const long directory =
      raw_system_call(SYS_openat, arguments_of(AT_FDCWD, kFiles, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  if (is_error(directory)) return false;
  bool found = false;
  alignas(Entry) char entries[1024];
  for (long bytes = 0; !found;) {
    bytes = raw_system_call(SYS_getdents64, arguments_of(directory, entries, sizeof entries));
    if (is_error(bytes) || bytes == 0) break;
    for (long at = 0; at < bytes && !found;) {
      const auto* const entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->bytes;
      int number = -1;
      const char* const name = entry->name;
      std::from_chars(name, name + std::strlen(name), number);
      found = number >= 0 && number != own && is_userfaultfd(directory, name);
    }
  }
  raw_system_call(SYS_close, arguments_of(directory));
  return found;
}

}  // namespace pinion
