#include "monitor/own_process.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <cerrno>

#include "monitor/system_call.h"

namespace pinion {

namespace {

/// EINTR is left to no caller.
template <class... T>
long repeated(long number, T... arguments) {
  long result;
  do result = raw_system_call(number, arguments_of(arguments...));
  while (result == -EINTR);
  return result;
}

long open_to_read(const char* path) { return repeated(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC); }

/// Moves bytes between memory of ours and memory that may go.
long transfer(long call, void* ours, Address theirs, std::size_t bytes) {
  const iovec here{ours, bytes}, there{reinterpret_cast<void*>(theirs), bytes};
  return repeated(call, raw_system_call(SYS_getpid, {}), &here, 1, &there, 1, 0);
}

}  // namespace

// ---- text ----

KernelText::KernelText(const char* path) : fd_(open_to_read(path)), failed_(fd_ < 0) {
  if (is_open()) advance();
}

KernelText::~KernelText() {
  if (is_open()) raw_system_call(SYS_close, arguments_of(fd_));
}

void KernelText::advance() {
  const bool has_ended = current_ == kEnd && offset_ != 0;
  if (at_ == filled_ && !has_ended) {
    const long bytes = repeated(SYS_pread64, fd_, buffer_, sizeof buffer_, offset_);
    failed_ = failed_ || is_error(bytes);
    filled_ = bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
    offset_ += filled_;
    at_ = 0;
  }
  current_ = filled_ == 0 ? kEnd : static_cast<unsigned char>(buffer_[at_++]);
}

void KernelText::skip_word() {
  while (current_ != ' ' && current_ != kEnd) advance();
  advance();
}

std::uint64_t KernelText::number(unsigned base) {
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

bool KernelText::line(std::string& text) {
  text.clear();
  const bool any = current_ != kEnd;
  for (; current_ != '\n' && current_ != kEnd; advance()) text += static_cast<char>(current_);
  if (current_ == '\n') advance();
  return any;
}

std::uint64_t kernel_number(const char* path, std::uint64_t otherwise) {
  KernelText text(path);
  const bool is_number = text.current() >= '0' && text.current() <= '9';
  return is_number ? text.number(10) : otherwise;
}

bool charges_untouched_memory(const char* file) {
  constexpr char kNever = '2';  // OVERCOMMIT_NEVER
  return KernelText(file).current() == kNever;
}

// ---- memory ----

long read_memory(Address from, void* to, std::size_t bytes) {
  return transfer(SYS_process_vm_readv, to, from, bytes);
}

long write_memory(Address to, const void* from, std::size_t bytes) {
  return transfer(SYS_process_vm_writev, const_cast<void*>(from), to, bytes);
}

long read_memory_without_rights(Address from, void* to, std::size_t bytes) {
  // Not /proc/self: it is empty once the main thread has exited.
  const long memory = open_to_read("/proc/thread-self/mem");
  if (is_error(memory)) return memory;
  const long read = repeated(SYS_pread64, memory, to, bytes, from);
  raw_system_call(SYS_close, arguments_of(memory));
  return read == -EIO ? -EFAULT : read;
}

}  // namespace pinion
