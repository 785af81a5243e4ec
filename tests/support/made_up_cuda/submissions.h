// Work that is no copy: kernels, host functions, waits for words in memory, events.
//
// Owns nothing (world.h does). Under the driver's mutex, which the calls release while they wait.
#pragma once

#include <functional>

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {

/// Puts work into a stream, or into its capture.
Result put(Call& call, const StreamPointer& stream, std::function<Result()> body);

Result launch_kernel(Call& call, const StreamPointer& stream, Handle function, void** parameters);
Result record_event(Call& call, const StreamPointer& stream, Handle event);

/// A word on the device or in registered memory, of 4 or 8 bytes.
struct Word {
  DevicePointer address = 0;
  std::uint64_t value = 0;
  bool wide = false;
};
/// Holds a stream back until the word is at least the value, or equal to it (flags 1).
Result wait_for_word(Call& call, const StreamPointer& stream, const Word& word, unsigned flags);
Result write_word(Call& call, const StreamPointer& stream, const Word& word);

}  // namespace pinion::made_up_cuda
