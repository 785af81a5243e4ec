#include "intercept/cuda/kept.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "intercept/cuda/submission_gate.h"
#include "monitor/open_frame.h"

namespace pinion::cuda {

namespace {

/// The kind of the object that ends there.
const KeptKind*& kind_before(unsigned char* end) { return reinterpret_cast<const KeptKind**>(end)[-1]; }

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

/// Objects that are open stay where they are, as their frames go on to use them. So does one whose
/// constructor has forked.
void forget_parent() {
  for (unsigned char* end = t_open.top; end != t_open.bottom;) {
    const KeptKind*& kind = kind_before(end);
    end -= kind->bytes;
    kind = nullptr;
  }
  if (t_open.frame != nullptr && t_open.limit != nullptr)
    t_open.bottom = t_open.top = std::min(t_open.top + OpenCall::kMostOfOne, t_open.limit);
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
    const KeptKind* const kind = std::exchange(kind_before(t_open.top), nullptr);
    t_open.top -= kind->bytes;
    kind->end(t_open.top);
  }
}

}  // namespace pinion::cuda
