// Reads this process: the kernel's text files about it, and its memory.
//
// Owns no state. Every function may be called from any thread, from hooks and from signal handlers, except
// those that fill a std::string: system calls are made directly, since a library may have replaced libc's
// functions, and nothing is allocated. stdio is left out: when a forked child ends, it moves the offset of
// each half-read file that it shares with its parent. Here each read names its offset. Memory is read by the
// kernel, so a page that has gone is an answer, where a pointer would end the process.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/range.h"

namespace pinion {

/// A text file of the kernel's, read from its beginning to its end.
class KernelText {
 public:
  static constexpr int kEnd = -1;

  explicit KernelText(const char* path);
  ~KernelText();
  KernelText(const KernelText&) = delete;
  KernelText& operator=(const KernelText&) = delete;

  bool is_open() const { return fd_ >= 0; }
  /// Whether a part is missing: the kernel refused the file, or a read of it.
  bool failed() const { return failed_; }
  /// The next character; kEnd behind the last one.
  int current() const { return current_; }
  void advance();

  void skip_word();
  /// Takes a number and the one character behind it.
  std::uint64_t number(unsigned base);
  /// Takes the rest of the line, without its end. False: there is no line left.
  bool line(std::string& text);

 private:
  long fd_;
  int current_ = kEnd;
  bool failed_ = false;
  std::uint64_t offset_ = 0;  ///< of the next read
  std::size_t at_ = 0, filled_ = 0;
  char buffer_[512];
};

/// The number at the beginning of a file; `otherwise` where there is none.
std::uint64_t kernel_number(const char* path, std::uint64_t otherwise);

/// Whether the program's addresses, or its private data, are bounded (RLIMIT_AS, RLIMIT_DATA).
inline bool has_address_limit() {
  rlimit addresses{}, data{};
  ::getrlimit(RLIMIT_AS, &addresses);
  ::getrlimit(RLIMIT_DATA, &data);
  return addresses.rlim_cur != RLIM_INFINITY || data.rlim_cur != RLIM_INFINITY;
}

/// Whether the system charges private memory that may be written, touched or not (strict overcommit).
bool charges_untouched_memory(const char* file = "/proc/sys/vm/overcommit_memory");

/// Copies memory of the process, up to the first page that has gone or forbids it. Returns the number of
/// bytes, or -errno: EFAULT for the first page, others where the kernel refuses the call.
long read_memory(Address from, void* to, std::size_t bytes);
/// Like read_memory(), in the other direction.
long write_memory(Address to, const void* from, std::size_t bytes);
/// Like read_memory(), but reads pages without rights too, as a debugger does. Opens a file.
long read_memory_without_rights(Address from, void* to, std::size_t bytes);

/// Whether all of the value could be read.
template <class Value>
bool read_value(Address from, Value& value) {
  return read_memory(from, &value, sizeof value) == static_cast<long>(sizeof value);
}

}  // namespace pinion
