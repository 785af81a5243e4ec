#include "intercept/cuda/faults.h"

#include <signal.h>
#include <sys/syscall.h>

#include <initializer_list>

#include "base/range.h"
#include "monitor/own_process.h"
#include "monitor/system_call.h"

namespace pinion::cuda {

bool faults_are_handled() {
  // The kernel's own structure begins with the handler, here as on any machine; libc's function may be the
  // program's, which hides handlers.
  struct {
    unsigned long handler, others[7];
  } action{};
  constexpr std::size_t kMaskBytes = 8;
  for (const int fault : {SIGSEGV, SIGBUS}) {
    const bool known =
        !is_error(raw_system_call(SYS_rt_sigaction, arguments_of(fault, 0L, &action, kMaskBytes)));
    const auto none = [&](auto handler) {
      return action.handler == reinterpret_cast<unsigned long>(handler);
    };
    if (!known || (!none(SIG_DFL) && !none(SIG_IGN))) return true;
  }
  return false;
}

bool read_program(void* to, const void* from, std::size_t bytes) {
  return read_memory(reinterpret_cast<Address>(from), to, bytes) == static_cast<long>(bytes);
}

bool write_program(void* to, const void* from, std::size_t bytes) {
  return write_memory(reinterpret_cast<Address>(to), from, bytes) == static_cast<long>(bytes);
}

}  // namespace pinion::cuda
