#include "engine/arena_closing.h"

namespace pinion {

void ArenaClosing::end_closed() {
  leases_.end_closed(
      [this](int number, const RegionRef& ref) { domains_.domain(number).release(ref.region); });
}

void ArenaClosing::retire_closed(ThreadContext& thread) {
  end_closed();
  for (int i = 0; i < domains_.count(); ++i) retirement_.reap(thread, i);
}

void ArenaClosing::leave(int number) {
  leases_.close(number);
  end_closed();
}

bool ArenaClosing::let_go(ThreadContext& thread, std::uint64_t bytes, Duration rest) {
  if (!leases_.close_idle(bytes, rest)) return false;
  retire_closed(thread);
  end_closed();  // shows the memory to children: the registrations have ended
  return true;
}

void ArenaClosing::end_closed_after_run() {
  leases_.end_closed(
      [this](int number, const RegionRef& open) { domains_.table().release_after_run(number, open); });
}

}  // namespace pinion
