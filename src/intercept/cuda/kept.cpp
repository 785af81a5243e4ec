#include "intercept/cuda/kept.h"

#include <pthread.h>

#include "intercept/cuda/submission_gate.h"
#include "monitor/open_frame.h"

namespace pinion::cuda {

namespace {

/// Its destructor runs before those of thread-specific data: the thread still has its context of the
/// engine's.
class ThreadEnd {
 public:
  ~ThreadEnd() {
    // A thread that ends the process from inside of a call still is in it.
    if (!OpenFrame::is_inside(t_open.frame)) end_open_call();
  }
  void watch() {}
};

/// Objects that are open stay where they are, as their frames go on to use them.
void forget_parent() {
  if (t_open.top != t_open.bottom) t_open.bottom = t_open.top += sizeof(void*);
  submission_gate().abandon_after_fork();
}

}  // namespace

void begin_keeping() {
  t_open.bottom = t_open.top = t_open.memory;
  t_open.limit = t_open.memory + OpenCall::kBytes;
  static thread_local ThreadEnd end;
  end.watch();
  [[maybe_unused]] static const int once = ::pthread_atfork(nullptr, nullptr, forget_parent);
}

void end_open_call() {
  while (t_open.top != t_open.bottom) {
    const KeptKind* const kind = reinterpret_cast<const KeptKind**>(t_open.top)[-1];
    t_open.top -= kind->bytes;
    kind->end(t_open.top);
  }
}

}  // namespace pinion::cuda
