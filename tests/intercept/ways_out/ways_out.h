// The ways that a thread can leave a call of a library: by an exception, a cancellation, a jump, the
// process's exit, a fork, or an end of Pinion meanwhile. Programs make each call leave by each way, and
// expect what comes of it without Pinion. Beside Pinion they check more: that the thread is served
// afterwards, and that no lease is left.
#pragma once

#include <dlfcn.h>
#include <pinion/pinion.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

namespace ways_out {

struct Thrown {};
inline jmp_buf g_back;
inline std::atomic<bool> g_inside{false};

[[noreturn]] inline void leave_by_throw() { throw Thrown(); }
[[noreturn]] inline void leave_by_jump() { longjmp(g_back, 1); }
[[noreturn]] inline void leave_by_exit() { std::exit(7); }
inline void stay_to_be_cancelled() {
  g_inside = true;
  for (;;) ::pause();
}
/// The parent waits for its child, which returns from the call.
inline bool g_is_child = false;
inline int g_child_status = -1;
inline void fork_inside() {
  const pid_t child = ::fork();
  g_is_child = child == 0;
  if (child > 0) ::waitpid(child, &g_child_status, 0);
}

using Call = std::function<void()>;

inline std::string by_throw(const Call& call) {
  try {
    call();
  } catch (const Thrown&) {
    return "caught";
  }
  return "returned";
}

/// Apart from its callers: what a jump leaves lies in their frames.
[[gnu::noinline]] inline std::string by_jump(const Call& call) {
  if (setjmp(g_back) != 0) return "jumped";
  call();
  return "returned";
}

inline void* run(void* call) {
  (*static_cast<const Call*>(call))();
  g_inside = true;  // or was never
  return nullptr;
}

inline std::string by_cancel(const Call& call) {
  g_inside = false;
  pthread_t thread;
  void* result = nullptr;
  pthread_create(&thread, nullptr, run, const_cast<Call*>(&call));
  bool ended = false;
  while (!g_inside && !(ended = pthread_tryjoin_np(thread, &result) == 0)) ::usleep(100);
  if (ended) return "returned";
  pthread_cancel(thread);
  pthread_join(thread, &result);
  return result == PTHREAD_CANCELED ? "cancelled" : "ended";
}

/// A thread that jumps out of the call, and ends.
inline std::string by_jump_of_a_thread(const Call& call) {
  std::string result;
  const Call jump = [&] { result = by_jump(call); };
  pthread_t thread;
  pthread_create(&thread, nullptr, run, const_cast<Call*>(&jump));
  pthread_join(thread, nullptr);
  return result;
}

inline std::string by_fork(const Call& call) {
  g_child_status = -1;
  call();
  if (g_is_child) ::_exit(5);
  return WIFEXITED(g_child_status) ? "child's status " + std::to_string(WEXITSTATUS(g_child_status))
                                   : "child's signal " + std::to_string(WTERMSIG(g_child_status));
}

/// Calls `f` deep in the stack, where its frames lie over those that a jump has left.
[[gnu::noinline]] inline void deeper(const Call& f) {
  volatile char room[16384];
  for (volatile char& byte : room) byte = 0x5a;
  f();
  room[0] = 0;
}

/// Starts the program itself with these arguments, and returns its status.
inline int status_of_self(const char* first, const char* second) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/proc/self/exe", first, second, nullptr);
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/// The memory that the kernel has pinned or locked for the process.
inline std::uint64_t pinned_bytes() {
  std::uint64_t kib = 0;
  std::FILE* const file = std::fopen("/proc/self/status", "re");
  char line[256];
  while (file != nullptr && std::fgets(line, sizeof line, file) != nullptr)
    if (std::strncmp(line, "VmLck:", 6) == 0 || std::strncmp(line, "VmPin:", 6) == 0)
      kib += std::strtoull(line + 6, nullptr, 10);
  if (file != nullptr) std::fclose(file);
  return kib << 10;
}

/// The process's figures; false without Pinion.
inline bool read(struct pinion_statistics& figures) {
  const auto ask = reinterpret_cast<decltype(&pinion_statistics)>(::dlsym(RTLD_DEFAULT, "pinion_statistics"));
  figures = {};
  figures.size = sizeof figures;
  return ask != nullptr && ask(nullptr, &figures) == 0;
}

}  // namespace ways_out
