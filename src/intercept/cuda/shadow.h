// A copy of a call's host memory that stands in for it: for a call that would meet a registration of ours
// that it can neither use nor wait for. It is plain memory of its own mapping, so that the driver treats it
// as it would have treated the program's.
//
// Owned by the calling thread, for the time of the call.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstring>

namespace pinion::cuda {

class Shadow {
 public:
  explicit Shadow(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Shadow() {
    if (*this) ::munmap(memory_, bytes_);
  }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// False: there is no memory for it.
  explicit operator bool() const { return memory_ != MAP_FAILED; }
  void* memory() const { return memory_; }
  void read_from(const void* host) { std::memcpy(memory_, host, bytes_); }
  void write_to(void* host) const { std::memcpy(host, memory_, bytes_); }

 private:
  const std::size_t bytes_;
  void* const memory_;
};

}  // namespace pinion::cuda
