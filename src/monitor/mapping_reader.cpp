#include "monitor/mapping_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "monitor/system_call.h"

namespace pinion {

// Not /proc/self: it is empty once the main thread has exited.
MappingReader::MappingReader()
    : fd_(raw_system_call(SYS_openat,
                          arguments_of(AT_FDCWD, "/proc/thread-self/maps", O_RDONLY | O_CLOEXEC))) {
  if (is_open()) advance();
}

MappingReader::~MappingReader() {
  if (is_open()) raw_system_call(SYS_close, arguments_of(fd_));
}

/// One line: "begin-end perms offset major:minor inode   path".
bool MappingReader::next(Mapping& mapping) {
  mapping.range.begin = number(16);
  mapping.range.end = number(16);
  rights(mapping);
  mapping.offset = number(16);
  skip_word();
  mapping.inode = number(10);
  while (current_ == ' ') advance();
  mapping.system_v = true;
  for (const char expected : {'/', 'S', 'Y', 'S', 'V'}) {
    mapping.system_v = mapping.system_v && current_ == expected;
    if (mapping.system_v) advance();
  }
  while (current_ != '\n' && current_ != kEnd) advance();
  if (current_ == kEnd) return false;
  advance();
  return true;
}

void MappingReader::rights(Mapping& mapping) {
  mapping.protection = 0;
  for (; current_ != ' ' && current_ != kEnd; advance()) {
    if (current_ == 'r') mapping.protection |= PROT_READ;
    if (current_ == 'w') mapping.protection |= PROT_WRITE;
    if (current_ == 'x') mapping.protection |= PROT_EXEC;
    mapping.is_private = current_ == 'p';
  }
  advance();
}

void MappingReader::advance() {
  if (at_ == filled_) {
    const long bytes = raw_system_call(SYS_read, arguments_of(fd_, buffer_, sizeof buffer_));
    filled_ = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    at_ = 0;
  }
  current_ = filled_ == 0 ? kEnd : buffer_[at_++];
}

void MappingReader::skip_word() {
  while (current_ != ' ' && current_ != kEnd) advance();
  advance();
}

std::uint64_t MappingReader::number(unsigned base) {
  std::uint64_t value = 0;
  for (;; advance()) {
    unsigned digit = base;
    if (current_ >= '0' && current_ <= '9') digit = static_cast<unsigned>(current_ - '0');
    if (current_ >= 'a' && current_ <= 'f') digit = static_cast<unsigned>(current_ - 'a') + 10;
    if (digit >= base) break;
    value = value * base + digit;
  }
  advance();
  return value;
}

}  // namespace pinion
