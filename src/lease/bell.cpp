#include "lease/bell.h"

#include "base/futex.h"

namespace pinion {

void HelperBell::wake() {
  sleep_.store(none, std::memory_order_release);
  futex_wake(sleep_, 1);
}

}  // namespace pinion
