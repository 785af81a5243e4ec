#include "call_sites.h"

#include <array>
#include <utility>

#include "player.h"

namespace play {

namespace {

/// The assembler line makes each body differ; otherwise the compiler would fold all into one. It also keeps
/// the call from becoming a jump, which leaves no return address.
template <std::size_t Number>
[[gnu::noinline]] void call(Player& player, const Step& step) {
  player.call_mpi(step);
  asm volatile("# call site %c0" : : "i"(Number) : "memory");
}

template <std::size_t... Numbers>
constexpr std::array<CallFrom, sizeof...(Numbers)> table(std::index_sequence<Numbers...>) {
  return {call<Numbers>...};
}

constexpr auto kCalls = table(std::make_index_sequence<kMostSites>());

}  // namespace

CallFrom call_from(std::size_t number) { return kCalls[number]; }

}  // namespace play
