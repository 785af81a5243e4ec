#include "lease/counted_closing.h"

namespace pinion {

void CountedClosing::release_after_run(Transfer& transfer) {
  ThreadContext* const thread = this_thread();
  if (thread == nullptr) return;
  static_cast<void>(give_back(*thread, transfer));
  transfer.counted_at = 0;
  const auto release = [this](int number, const RegionRef& ref) {
    domains_.table().release_after_run(number, ref);
  };
  leases_.end_closed(release);
  retirement_.shared().end_closed(release);
}

void CountedClosing::end_closed() {
  end_segments();
  retirement_.end_shared(nullptr);
}

void CountedClosing::look(Time now) {
  retirement_.shared().look(now);
  end_closed();
}

void CountedClosing::end_segments() {
  leases_.end_closed(
      [this](int number, const RegionRef& ref) { domains_.domain(number).release(ref.region); });
}

void CountedClosing::retire_closed(ThreadContext& thread) {
  end_segments();
  retirement_.end_shared(&thread);
  for (int i = 0; i < domains_.count(); ++i) retirement_.reap(thread, i);
}

void CountedClosing::leave(int number) {
  leases_.close(number);
  retirement_.shared().close(number);
  end_closed();
}

bool CountedClosing::let_go(ThreadContext& thread, std::uint64_t bytes, Duration rest) {
  const bool unshared = retirement_.unshare(thread, kAllDomains);
  if (!leases_.close_idle(bytes, rest)) return unshared;
  retire_closed(thread);
  end_segments();  // shows the memory to children: the registrations have ended
  return true;
}

}  // namespace pinion
