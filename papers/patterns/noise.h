// The noises under which patterns are simulated: ways in which computations stray from their nominal lengths.
#pragma once

#include <string>

#include "base/error.h"
#include "simulate/disturbance.h"

namespace pinion::simulate {

/// "none", "1%" (any share either way, evenly), "spikes" (something takes the core: every 100 ms of
/// computation on average, for 0.5 to 2 ms), "warm-up" (twice as slow at first, falling to nominal within a
/// twentieth of the run), "regime" (nominal, then half as slow again in the second third of the run, then a
/// quarter faster), "drift" (evenly slower, up to half as slow again at the end), "irregular" (every interval
/// between half and twice its length, evenly in the logarithm). `disturbance` is empty for none.
Error find_noise(const std::string& text, MakeDisturbance& disturbance);

}  // namespace pinion::simulate
