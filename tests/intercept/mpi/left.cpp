// Leaves MPI calls by an exception or a jump, out of the program's own error handlers and attribute
// functions; with `cancel`, by a cancellation. Prints what came of each, and how transfers went after it.
// Pinion leaves the output unchanged. One rank.
#include <mpi.h>
#include <pthread.h>
#include <setjmp.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <stdexcept>
#include <vector>

namespace {

constexpr int kBytes = 1 << 20;
std::vector<char> out(kBytes, 1), in(kBytes);
jmp_buf g_back;
bool g_jumps = false;

void leave() {
  if (g_jumps) longjmp(g_back, 1);
  throw std::runtime_error("left");
}
void on_comm(MPI_Comm*, int*, ...) { leave(); }
void on_win(MPI_Win*, int*, ...) { leave(); }
void on_file(MPI_File*, int*, ...) { leave(); }
int on_delete(MPI_Comm, int, void*, void*) {
  leave();
  return MPI_SUCCESS;
}

[[gnu::noinline]] const char* outcome(const std::function<void()>& call) {
  if (setjmp(g_back) != 0) return "jumped";
  try {
    call();
  } catch (const std::runtime_error&) {
    return "caught";
  }
  return "returned";
}

/// A large message to itself.
bool transfers() {
  std::memset(in.data(), 0, in.size());
  MPI_Sendrecv(out.data(), kBytes, MPI_BYTE, 0, 5, in.data(), kBytes, MPI_BYTE, 0, 5, MPI_COMM_SELF,
               MPI_STATUS_IGNORE);
  return in == out;
}

void attempt(const char* what, const std::function<void()>& call) {
  for (const bool jumps : {false, true}) {
    g_jumps = jumps;
    const char* const left = outcome(call);
    std::printf("%s: %s, then %s\n", what, left, transfers() ? "right" : "wrong");
    std::fflush(stdout);
  }
}

void leave_by_handlers() {
  MPI_Errhandler handler, win_handler, file_handler;
  MPI_Comm_create_errhandler(on_comm, &handler);
  MPI_Win_create_errhandler(on_win, &win_handler);
  MPI_File_create_errhandler(on_file, &file_handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  MPI_Request request;
  const int kNobody = 77;
  attempt("small send", [&] { MPI_Send(out.data(), 10, MPI_BYTE, kNobody, 0, MPI_COMM_WORLD); });
  attempt("send", [&] { MPI_Send(out.data(), kBytes, MPI_BYTE, kNobody, 0, MPI_COMM_WORLD); });
  attempt("isend", [&] { MPI_Isend(out.data(), kBytes, MPI_BYTE, kNobody, 0, MPI_COMM_WORLD, &request); });
  attempt("recv",
          [&] { MPI_Recv(in.data(), kBytes, MPI_BYTE, kNobody, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
  attempt("send_init",
          [&] { MPI_Send_init(out.data(), kBytes, MPI_BYTE, kNobody, 0, MPI_COMM_WORLD, &request); });
  attempt("bcast", [&] { MPI_Bcast(out.data(), kBytes, MPI_BYTE, kNobody, MPI_COMM_WORLD); });
  attempt("ibcast", [&] { MPI_Ibcast(out.data(), kBytes, MPI_BYTE, kNobody, MPI_COMM_WORLD, &request); });
  MPI_Win win;
  if (MPI_Win_create(in.data(), kBytes, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win) == MPI_SUCCESS) {
    MPI_Win_set_errhandler(win, win_handler);
    attempt("put", [&] { MPI_Put(out.data(), kBytes, MPI_BYTE, kNobody, 0, kBytes, MPI_BYTE, win); });
  }
  attempt("comm_free", [&] {
    int key;
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_delete, &key, nullptr);
    MPI_Comm_set_attr(copy, key, nullptr);
    MPI_Comm_free(&copy);
  });
  MPI_File file;
  if (MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_WRONLY, MPI_INFO_NULL, &file) != MPI_SUCCESS) return;
  MPI_File_set_errhandler(file, file_handler);
  attempt("file_read", [&] { MPI_File_read(file, in.data(), kBytes, MPI_BYTE, MPI_STATUS_IGNORE); });
}

void* receive(void*) {
  static char unmatched[kBytes];
  MPI_Recv(unmatched, kBytes, MPI_BYTE, 0, 99, MPI_COMM_SELF, MPI_STATUS_IGNORE);
  return nullptr;
}

void leave_by_cancellation() {
  pthread_t thread;
  pthread_create(&thread, nullptr, receive, nullptr);
  usleep(100000);
  pthread_cancel(thread);
  timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 20;
  void* result = nullptr;
  const int error = pthread_timedjoin_np(thread, &result, &until);
  std::printf("cancelled receive: join %d, cancelled %d\n", error, error == 0 && result == PTHREAD_CANCELED);
}

}  // namespace

int main(int count, char** arguments) {
  // Libraries for several threads may hold a lock in a handler, for good once it is left.
  const bool cancels = count > 1;
  int provided;
  MPI_Init_thread(&count, &arguments, cancels ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
  cancels ? leave_by_cancellation() : leave_by_handlers();
  std::puts("end");
  std::fflush(stdout);
  _exit(0);  // the library may be left in any state
}
