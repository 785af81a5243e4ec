#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace pinion {

namespace {

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* until) {
  return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation | FUTEX_PRIVATE_FLAG, value,
                   until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

}  // namespace

long futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t value, Time until) {
  const timespec at{until / kSecond, until % kSecond};
  return futex(word, FUTEX_WAIT_BITSET, value, until == kNever ? nullptr : &at);
}

long futex_wake(std::atomic<std::uint32_t>& word, int waiters) {
  return futex(word, FUTEX_WAKE_BITSET, static_cast<std::uint32_t>(waiters), nullptr);
}

}  // namespace pinion
