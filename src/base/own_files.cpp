#include "base/own_files.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <system_error>
#include <thread>

namespace pinion {

namespace {
constexpr unsigned kOwnTable = 2;  ///< CLOSE_RANGE_UNSHARE (Linux 5.9)
}

bool with_own_files(const std::function<void()>& function) {
  bool done = false;
  try {
    std::thread([&] {
      if (::syscall(SYS_close_range, 0u, ~0u, kOwnTable) != 0) return;
      function();
      done = true;
    }).join();
  } catch (const std::system_error&) {
    return false;
  }
  return done;
}

}  // namespace pinion
