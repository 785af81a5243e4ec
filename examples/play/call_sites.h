// A place in the code for each call site of a pattern. Pinion names a site by the return addresses of the
// call, so sites are distinct only where functions of their own make the calls.
#pragma once

#include <cstddef>

namespace play {

class Player;
struct Step;

/// Lets `player` make the MPI call of `step`.
using CallFrom = void (*)(Player& player, const Step& step);

constexpr std::size_t kMostSites = 256;

/// The function of that number, below kMostSites.
CallFrom call_from(std::size_t number);

}  // namespace play
