#include "monitor/mapping_tails.h"

#include "monitor/hooked_change.h"
#include "monitor/hooked_functions.h"

namespace pinion {

constinit MappingTails mapping_tails;

long map_as_wished(const SystemCallArguments& arguments, const ConcernedMemory& memory, Range& tail) {
  const MappingWish wish = wish_for(arguments);
  if (wish.alignment == 0) return call_next(kMmap, arguments, memory);
  SystemCallArguments larger = arguments;
  larger[1] += static_cast<long>(2 * wish.alignment);
  const long mapped = call_next(kMmap, larger, memory);
  if (is_error(mapped)) return call_next(kMmap, arguments, memory);
  const auto aligned = [&](Address at) {
    return (at + wish.alignment - 1) / wish.alignment * wish.alignment;
  };
  const Range all{static_cast<Address>(mapped), page_ceil(static_cast<Address>(mapped + larger[1]))};
  const Address begin = aligned(all.begin), end = begin + page_ceil(static_cast<std::size_t>(arguments[1]));
  if (wish.tail) tail = {end, aligned(end)};
  if (!tail.empty() && !mapping_tails.add(tail)) tail = {};
  for (const Range rest : {Range{all.begin, begin}, Range{tail.empty() ? end : tail.end, all.end}})
    if (!rest.empty()) call_next(kMunmap, arguments_of(rest.begin, rest.bytes()), {rest, {}});
  return static_cast<long>(begin);
}

}  // namespace pinion
