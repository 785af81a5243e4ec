// Gather lists in the public C API: checks arguments, and turns results into errno values and this thread's
// text. Owns nothing. pinion_gather_plan() makes an Error only where it returns one.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>

#include "gather/gather_costs.h"
#include "gather/gather_plan.h"
#include "pinion/pinion.h"
#include "process/c_api_inside.h"

using namespace pinion;

namespace {

/// Sizes of the structures in version PINION_0.4's first headers.
constexpr std::size_t kFirstCosts = offsetof(pinion_gather_costs, large_request_ns);
constexpr std::size_t kFirstProbe = offsetof(pinion_gather_probe, max_bytes);

template <class Struct>
[[gnu::cold]] int bad_struct(const char* call, const char* name, const Struct* given) {
  if (!given) return fail(Error::make(EINVAL, "%s: the %s are NULL", call, name));
  return fail(Error::make(EINVAL, "%s: set the field `size` of the %s to %zu (it is %zu)", call, name,
                          sizeof *given, given->size));
}

/// Calls visit(value) for each time.
template <class Visit>
void each_time(const pinion_gather_costs& costs, Visit&& visit) {
  for (const double ns : costs.elements_ns) visit(ns);
  for (const double ns :
       {costs.request_ns, costs.copied_piece_ns, costs.copied_byte_ns, costs.large_request_ns})
    visit(ns);
}

/// All finite, from 0 on. By integers, which are cheap everywhere: the sign is the highest bit, and infinity
/// is below all that is not a number.
bool are_times(const pinion_gather_costs& costs) {
  constexpr auto kInfinity = std::bit_cast<std::uint64_t>(std::numeric_limits<double>::infinity());
  std::uint64_t most = 0;
  each_time(costs, [&](double ns) { most = std::max(most, std::bit_cast<std::uint64_t>(ns)); });
  if (most < kInfinity) [[likely]]
    return true;
  bool times = true;  // zeros may have a sign
  each_time(costs, [&](double ns) { times &= std::bit_cast<std::uint64_t>(ns) < kInfinity || ns == 0; });
  return times;
}

const char* fault_of(const pinion_gather_costs& costs) {
  if (costs.max_elements == 0) return "a request takes one element at least (max_elements is 0)";
  return are_times(costs) ? nullptr : "times are finite values from 0 on";
}

[[gnu::cold]] int bad_piece(const char* call, const pinion_range& piece, size_t at) {
  return fail(Error::make(EFAULT, "%s: piece %zu: no memory can be at %p (%zu bytes)", call, at,
                          piece.address, piece.bytes));
}

using Elements = std::span<const pinion_gather_element>;

template <class Copy>
int copied(const char* call, const pinion_range* pieces, const pinion_gather_element* elements, size_t count,
           Copy&& copy) {
  if (count > 0 && (!pieces || !elements))
    return fail(Error::make(EINVAL, "%s: the %s are NULL", call, pieces ? "elements" : "pieces"));
  copy(pieces, Elements(elements, count));
  return 0;
}

}  // namespace

int pinion_gather_plan(const struct pinion_gather_costs* costs, const struct pinion_range* pieces,
                       size_t count, void* packed, size_t packed_bytes,
                       struct pinion_gather_element* elements, size_t* element_count) {
  const char* const call = "pinion_gather_plan";
  if (!costs || costs->size < kFirstCosts) return bad_struct(call, "costs", costs);
  pinion_gather_costs grown;
  const pinion_gather_costs* device = costs;
  if (costs->size < sizeof grown) device = &(grown = given(*costs));
  if (const char* const fault = fault_of(*device)) return fail(Error::make(EINVAL, "%s: %s", call, fault));
  if ((!pieces && count > 0) || !element_count || (!elements && *element_count > 0))
    return fail(Error::make(EINVAL, "%s: the %s NULL", call,
                            !pieces && count > 0 ? "pieces are"
                            : element_count      ? "elements are"
                                                 : "count is"));
  const size_t room = *element_count;
  const GatherPlan plan = plan_gather(
      *device, {pieces, count}, {static_cast<char*>(packed), packed ? packed_bytes : 0}, {elements, room});
  if (plan.refused) return bad_piece(call, *plan.refused, static_cast<size_t>(plan.refused - pieces));
  *element_count = plan.elements;
  if (plan.elements <= room) return 0;
  return fail(Error::make(ENOSPC, "%s: there is room for %zu elements; the plan takes up to %zu", call, room,
                          plan.elements));
}

int pinion_gather_pack(const struct pinion_range* pieces, const struct pinion_gather_element* elements,
                       size_t element_count) {
  return copied("pinion_gather_pack", pieces, elements, element_count, pack_gathered);
}

int pinion_gather_unpack(const struct pinion_range* pieces, const struct pinion_gather_element* elements,
                         size_t element_count) {
  return copied("pinion_gather_unpack", pieces, elements, element_count, unpack_gathered);
}

int pinion_gather_measure(const struct pinion_gather_probe* probe, struct pinion_gather_costs* costs) {
  const char* const call = "pinion_gather_measure";
  if (!probe || probe->size < kFirstProbe) return bad_struct(call, "probe's fields", probe);
  if (!costs || costs->size < kFirstCosts) return bad_struct(call, "costs", costs);
  if (probe->max_elements == 0 || !probe->transfer)
    return fail(
        Error::make(EINVAL, "%s: the probe has no %s", call, probe->transfer ? "elements" : "transfer"));
  pinion_gather_costs measured{};
  try {
    if (const Error error = measure_gather(given(*probe), measured))
      return fail(Error::make(error.code, "%s: %s", call, error.message));
  } catch (const std::bad_alloc&) {
    return fail(Error::make(ENOMEM, "%s: out of memory", call));
  }
  return fill(costs, measured);
}
