/* Starts Pinion in a second thread, and forks meanwhile where its tester says so. The child starts it, too.
   Standard input: a byte `g` lets the second thread begin, `f` makes the fork, `q` ends. Standard output: the
   second thread's id, a line; then a letter for each fork: `s` the child started and stopped Pinion, `e` it
   was refused, `h` it hung. */
#include <pinion/pinion.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int go[2];

static void* begin(void* nothing) {
  char letter;
  printf("%ld\n", syscall(SYS_gettid));
  fflush(stdout);
  if (read(go[0], &letter, 1) == 1 && pinion_start(NULL) == 0) pinion_stop();
  return nothing;
}

static char child_result(void) {
  const pid_t child = fork();
  if (child == 0) {
    const int error = pinion_start(NULL);
    if (error == 0) pinion_stop();
    if (error != 0) fprintf(stderr, "the child was refused: %s\n", pinion_last_error());
    _exit(error != 0);
  }
  for (int tenths = 0; tenths < 300; ++tenths) {
    int status;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) fprintf(stderr, "the child ended by signal %d\n", WTERMSIG(status));
      return status == 0 ? 's' : 'e';
    }
    usleep(100000);
  }
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return 'h';
}

int main(void) {
  pthread_t thread;
  char letter, result;
  if (pipe(go) != 0 || pthread_create(&thread, NULL, begin, NULL) != 0) return 1;
  while (read(STDIN_FILENO, &letter, 1) == 1 && letter != 'q') {
    if (letter == 'g' && write(go[1], "g", 1) != 1) return 1;
    if (letter != 'f') continue;
    result = child_result();
    if (write(STDOUT_FILENO, &result, 1) != 1) return 1;
  }
  pthread_join(thread, NULL);
  return 0;
}
