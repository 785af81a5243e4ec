// Benches that call Pinion as a middleware does, by the C API. Single-threaded.
#pragma once

#include "command.h"
#include "pinion/pinion.h"

namespace pinion::cli {

/// Of a call of the C API.
inline void must(int error) {
  if (error) throw Failure(pinion_last_error());
}

}  // namespace pinion::cli
