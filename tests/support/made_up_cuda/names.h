// Which function a name means for cuGetProcAddress. Pure: any thread.
#pragma once

#include "support/made_up_cuda/types.h"

namespace pinion::made_up_cuda {

/// What cuGetProcAddress_v2 says of a name.
enum NameStatus { kFound = 0, kNoSuchName = 1, kNewerOnly = 2 };

/// Finds the newest function of a name that a program of that version knows.
NameStatus look_up(const char* name, int version, std::uint64_t flags, void** function);

}  // namespace pinion::made_up_cuda
