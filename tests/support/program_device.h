// A device of the program's own for tests of the C API (pinion_domain_open_operations), and memory for it.
// Any thread; one mutex, held while `refuse` and its like run.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "pinion/pinion.h"

namespace pinion::test {

inline const std::size_t kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

class Memory {
 public:
  explicit Memory(std::size_t pages, int rights = PROT_READ | PROT_WRITE) : bytes_(pages * kPage) {
    base_ = static_cast<char*>(::mmap(nullptr, bytes_, rights, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Memory() { ::munmap(base_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* page(std::size_t i) const { return base_ + i * kPage; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  char* base_;
};

/// Registers nothing; keeps a list of the live registrations, and refuses those that the test selects.
class Operations {
 public:
  struct Live {
    void* address;
    std::size_t bytes;
    unsigned access;
  };

  Operations() {
    asked.size = sizeof asked;
    asked.version = PINION_DEVICE_VERSION;
    asked.context = this;
    asked.register_memory = [](void* context, void* address, std::size_t bytes, unsigned access,
                               pinion_registration* made) {
      return static_cast<Operations*>(context)->add({address, bytes, access}, *made);
    };
    asked.deregister_memory = [](void* context, std::uint64_t handle) {
      return static_cast<Operations*>(context)->remove(handle);
    };
  }

  pinion_device_operations asked{};
  /// An errno value for a registration, or 0; the number of those that are live.
  std::function<int(const Live&, std::size_t live)> refuse = [](const Live&, std::size_t) { return 0; };
  std::function<int()> refuse_deregistration = [] { return 0; };
  /// Fills in the registration's other fields.
  std::function<void(pinion_registration&)> describe = [](pinion_registration&) {};

  std::vector<Live> calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  std::size_t live() const {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }

 private:
  int add(const Live& memory, pinion_registration& made) {
    const std::lock_guard lock(mutex_);
    calls_.push_back(memory);
    EXPECT_EQ(made.size, sizeof made);
    EXPECT_EQ(made.remote_base, reinterpret_cast<std::uintptr_t>(memory.address));
    if (const int code = refuse(memory, live_.size())) return code;
    made.handle = kFirstHandle + calls_.size();
    describe(made);
    live_.emplace(made.handle, memory);
    return 0;
  }
  int remove(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    if (const int code = refuse_deregistration()) return code;
    EXPECT_EQ(live_.erase(handle), 1u) << "deregistered twice, or never registered";
    return 0;
  }

  static constexpr std::uint64_t kFirstHandle = std::uint64_t{1} << 40;
  mutable std::mutex mutex_;
  std::vector<Live> calls_;
  std::map<std::uint64_t, Live> live_;
};

}  // namespace pinion::test
