#include "lease/thread_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>

#include "monitor/system_call.h"

namespace pinion {

namespace {

bool member(long command) { return raw_system_call(SYS_membarrier, arguments_of(command, 0L, 0L)) == 0; }

}  // namespace

bool prepare_thread_fence() { return member(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }
bool thread_fence() { return member(MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

}  // namespace pinion
