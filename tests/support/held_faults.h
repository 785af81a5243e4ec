// A userfaultfd of the program's, over memory whose faults it does not serve: each one waits until the object
// is gone. Needs the right to serve faults of the kernel's own (a process without it skips the test).
#pragma once

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/range.h"
#include "monitor/system_call.h"

namespace pinion::test {

class HeldFaults {
 public:
  enum class By { libc, own_code };  ///< hooks meet calls of libc's alone

  static bool allowed() {
    const HeldFaults tried({}, By::own_code);
    return tried.fd_ >= 0;
  }

  HeldFaults(Range pages, By by) : fd_(static_cast<int>(open(by))) {
    uffdio_api api{};
    api.api = UFFD_API;
    if (fd_ < 0 || ::ioctl(fd_, UFFDIO_API, &api) != 0 || pages.empty()) return;
    uffdio_register request{};
    request.range = {pages.begin, pages.bytes()};
    request.mode = UFFDIO_REGISTER_MODE_MISSING;
    held_ = ::ioctl(fd_, UFFDIO_REGISTER, &request) == 0;
  }
  ~HeldFaults() { ::close(fd_); }
  HeldFaults(const HeldFaults&) = delete;
  HeldFaults& operator=(const HeldFaults&) = delete;

  bool held() const { return held_; }
  /// Whether a fault waits.
  bool any() const {
    uffd_msg message{};
    return ::read(fd_, &message, sizeof message) == sizeof message;
  }

 private:
  static long open(By by) {
    constexpr int kFlags = O_CLOEXEC | O_NONBLOCK;
    return by == By::libc ? ::syscall(SYS_userfaultfd, kFlags)
                          : raw_system_call(SYS_userfaultfd, arguments_of(kFlags));
  }

  const int fd_;
  bool held_ = false;
};

}  // namespace pinion::test
