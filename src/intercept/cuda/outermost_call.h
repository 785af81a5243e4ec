// The outermost call of the program that a thread is in. What a library behind us calls meanwhile belongs to
// that call, whose memory is closed, or leased: it passes by. A call that a jump has left counts no more
// (monitor/open_frame.h), and what it has left open ends with the thread's next call, or with the thread
// (kept.h). Lives in the wrapper's frame; any thread, outside of memory hooks.
#pragma once

#include "intercept/cuda/kept.h"
#include "monitor/open_frame.h"

namespace pinion::cuda {

class OutermostCall {
 public:
  OutermostCall() = default;
  OutermostCall(const OutermostCall&) = delete;
  OutermostCall& operator=(const OutermostCall&) = delete;

  /// False: the thread is inside of another call.
  [[gnu::always_inline]] bool open() {
    const OpenFrame::Opened opened = frame_.open(t_open.frame);
    if (opened == OpenFrame::Opened::inside) [[unlikely]]
      return false;
    if (opened == OpenFrame::Opened::after_a_jump) [[unlikely]]
      end_open_call();
    return true;
  }

 private:
  OpenFrame frame_;
};

}  // namespace pinion::cuda
