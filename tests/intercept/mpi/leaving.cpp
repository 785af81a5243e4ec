// Programs that end otherwise than MPI wants. leaving HOW, with HOW of: exit (no MPI_Finalize), abort
// (MPI_Abort), sleep (prints a line, then waits to be killed), fork (a child that uses and frees the parent's
// buffers), interrupt (a signal handler that calls exit() at any moment of the transfers). Two ranks.
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "check.h"

namespace {

/// In how many calls of malloc and its like the thread is. An exit out of malloc hangs by itself as soon as
/// libc frees its list of handlers, with Pinion or without.
thread_local volatile int t_in_malloc = 0;

template <class Call>
auto counted(Call&& call) {
  t_in_malloc = t_in_malloc + 1;
  const auto result = call();
  t_in_malloc = t_in_malloc - 1;
  return result;
}

void alarm_in(suseconds_t microseconds) {
  itimerval soon{};
  soon.it_value.tv_usec = microseconds;
  ::setitimer(ITIMER_REAL, &soon, nullptr);
}

/// SIGALRM comes once, within the next milliseconds; again, where it has met malloc.
void exit_soon(int rank) {
  ::signal(SIGALRM, [](int) {
    if (t_in_malloc == 0) std::exit(0);
    alarm_in(1);
  });
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  alarm_in(1 + (now.tv_nsec / 1000 + 3000 * rank) % 10'000);
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* block, std::size_t bytes);
void __libc_free(void* block);

void* malloc(std::size_t bytes) {
  return counted([&] { return __libc_malloc(bytes); });
}
void* calloc(std::size_t count, std::size_t bytes) {
  return counted([&] { return __libc_calloc(count, bytes); });
}
void* realloc(void* block, std::size_t bytes) {
  return counted([&] { return __libc_realloc(block, bytes); });
}
void free(void* block) {
  counted([&] {
    __libc_free(block);
    return 0;
  });
}

}  // extern "C"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int me = world_rank(), other = 1 - me;
  const char* how = argc > 1 ? argv[1] : "";
  constexpr int kCount = 50000;
  const auto out = message(kCount, me, 1);
  std::vector<int> in(kCount);
  MPI_Request pending;
  std::vector<int> never(kCount);
  MPI_Irecv(never.data(), kCount, MPI_INT, other, 99, MPI_COMM_WORLD, &pending);
  const bool interrupted = std::strcmp(how, "interrupt") == 0;
  if (interrupted) exit_soon(me);
  for (int round = 0; round < 20 || interrupted; ++round) {
    MPI_Sendrecv(out.data(), kCount, MPI_INT, other, 1, in.data(), kCount, MPI_INT, other, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    CHECK(holds(in, other, 1));
    if (std::strcmp(how, "fork") == 0 && round % 5 == 0) {
      const pid_t child = ::fork();
      if (child == 0) {
        std::vector<int>().swap(in);
        std::exit(0);  // the parent's handlers run here too
      }
      int status = -1;
      ::waitpid(child, &status, 0);
      CHECK(status == 0);
    }
  }
  if (std::strcmp(how, "fork") == 0) {
    MPI_Cancel(&pending);
    MPI_Wait(&pending, MPI_STATUS_IGNORE);
    return finish();
  }
  if (me == 0) std::printf(g_failures ? "FAILED\n" : "verified\n");
  std::fflush(stdout);
  MPI_Barrier(MPI_COMM_WORLD);
  if (std::strcmp(how, "abort") == 0 && me == 1) MPI_Abort(MPI_COMM_WORLD, 7);
  while (std::strcmp(how, "exit") != 0) ::sleep(1);
  return 0;
}
