// Links the front for CUDA into a program of tests/gpu/programs: a sanitizer's runtime cannot have the
// preload before it. Owns what stands in for the front's roads (reach.cpp), its build stamp, and its fork().
// Any thread.
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "gpu/programs/program.h"
#include "intercept/cuda/calls.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/reach.h"
#include "intercept/same_build.h"
#include "lease/copy_counters.h"
#include "process/engine.h"

namespace pinion {

bool same_build() { return true; }
bool same_build_or_say_so() { return true; }

namespace cuda {

void* wrapped_address(const char*, int, bool, void* found) { return found; }

}  // namespace cuda

namespace gpu {

void* called_for(const char* symbol, void* function) {
  const std::size_t call = cuda::call_of(symbol);
  if (call == cuda::kCallCount || function == nullptr || !cuda::has_driver()) return function;
  void* none = nullptr;
  std::atomic<void*>& behind = cuda::g_behind[call][0];
  if (!behind.compare_exchange_strong(none, function) && none != function) std::abort();
  return cuda::kCalls[call].wrappers[0];
}

namespace {

/// Says at the end how the copies went: a run whose copies were all plain has tested nothing.
[[gnu::destructor]] void say_ways() {
  runlog::Counters sum{};
  copy_counters().add_to(sum);
  unsigned long long counts[runlog::kCopyWays];
  for (unsigned way = 0; way < runlog::kCopyWays; ++way)
    counts[way] = sum.copies_to_gpu[way].count + sum.copies_from_gpu[way].count;
  std::printf("copies went: %llu plain, %llu staged, %llu registered\n", counts[0], counts[1], counts[2]);
}

}  // namespace
}  // namespace gpu
}  // namespace pinion

extern "C" {

// The linker leads calls of fork() here.
pid_t __real_fork();  // NOLINT(bugprone-reserved-identifier)
pid_t __wrap_fork();  // NOLINT(bugprone-reserved-identifier)

pid_t __wrap_fork() {  // NOLINT(bugprone-reserved-identifier)
  pinion::Engine::before_fork();
  const pid_t child = __real_fork();
  pinion::Engine::after_fork();
  return child;
}
}

#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions();
extern "C" [[gnu::visibility("default")]] const char* __tsan_default_suppressions() {
  // The helper is awaited at exit, but not joined (Engine::stop_at_exit).
  return "thread:pinion::Helper::start\n";
}
#endif
