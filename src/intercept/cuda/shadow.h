// A copy of a call's host memory that stands in for it: for a call that would meet a registration of ours
// that it can neither use nor wait for. It is plain memory of its own mapping, so that the driver treats it
// as it would have treated the program's.
//
// The kernel may map it where a registration of unmapped memory still waits for its end: the driver would
// take the shadow for that old memory. Such a mapping is put aside, and the shadow's own stays closed to
// registration.
//
// Owned by the calling thread, for the time of the call.
#pragma once

#include <sys/mman.h>

#include <array>
#include <cstddef>
#include <cstring>

#include "device/cuda/host_ranges.h"

namespace pinion::cuda {

class Shadow {
 public:
  explicit Shadow(std::size_t bytes) : bytes_(bytes) {
    std::array<void*, 64> aside;
    std::size_t count = 0;
    while (count < aside.size() && !*this) {
      void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (mapped == MAP_FAILED) break;
      block_ = Range::of(mapped, bytes);
      if (host_ranges().close({&block_, 1}))
        memory_ = mapped;
      else
        aside[count++] = mapped;
    }
    while (count > 0) ::munmap(aside[--count], bytes);
  }
  ~Shadow() {
    if (!*this) return;
    host_ranges().open({&block_, 1});
    ::munmap(memory_, bytes_);
  }
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  /// False: there is no memory for it.
  explicit operator bool() const { return memory_ != nullptr; }
  void* memory() const { return memory_; }
  void read_from(const void* host) { std::memcpy(memory_, host, bytes_); }
  void write_to(void* host) const { std::memcpy(host, memory_, bytes_); }

 private:
  const std::size_t bytes_;
  Block block_;
  void* memory_ = nullptr;
};

}  // namespace pinion::cuda
