#include "intercept/cuda/stack_room.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/range.h"

extern "C" void* __libc_stack_end;  // NOLINT(bugprone-reserved-identifier): of the C library

namespace pinion::cuda {

namespace {

constexpr std::size_t kEnough = std::size_t{64} << 10;

/// Empty where it is unknown.
Range stack_of_main_thread() {
  // The C library would read all of /proc/self/maps.
  constexpr rlim_t kMost = rlim_t{8} << 20;
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0) return {};
  const auto end = reinterpret_cast<Address>(__libc_stack_end);
  return {end - std::min(limit.rlim_cur, kMost), end};
}

Range stack_of_this_thread() {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return {};
  void* begin = nullptr;
  std::size_t bytes = 0;
  const int result = ::pthread_attr_getstack(&attributes, &begin, &bytes);
  ::pthread_attr_destroy(&attributes);
  return result == 0 ? Range::of(begin, bytes) : Range{};
}

}  // namespace

bool has_room_on_stack() {
  const Range stack = ::syscall(SYS_gettid) == ::getpid() ? stack_of_main_thread() : stack_of_this_thread();
  const auto here = reinterpret_cast<Address>(__builtin_frame_address(0));
  return stack.begin <= here && here < stack.end && here - stack.begin >= kEnough;
}

}  // namespace pinion::cuda
