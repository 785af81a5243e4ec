// A libibverbs of which tests see the inside: it leaves memory unpinned, lists all its registrations,
// and returns EINVAL for dead handles, which it leaves unread. Devices, protection domains and handles have
// addresses that are used once. Its device may not be opened where MADE_UP_REFUSES is set. Where
// MADE_UP_OPERATIONS is set, contexts have a provider's function. Any thread; one mutex inside.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pinion::made_up_verbs {

struct Region {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  int access = 0;
  ibv_pd* pd = nullptr;
  std::uint64_t number = 0;  ///< of the registration, counted from 1
};

/// The live region of a key.
std::optional<Region> find(std::uint32_t key);
std::size_t live_regions(const ibv_pd* pd);
struct Held {
  std::size_t regions = 0;
  std::uint64_t bytes = 0;  ///< the union of pages
};
Held held();
/// The most since the last call.
Held take_peak();
/// The number of the last registration.
std::uint64_t last_number();
/// Deregistrations of dead handles.
std::uint64_t strangers();

/// The device disappears: from now on calls that need it, and deregistrations, fail with EIO.
void unplug();

/// From now on registrations that would be more than `most` at a time fail with ENOMEM.
void limit_regions(std::size_t most);

/// Calls `before` at the beginning of each function that registers, deregisters or frees, with its name and
/// free of locks; null: no more. It may leave the function by an exception or a jump.
void at_calls(void (*before)(const char* function));

}  // namespace pinion::made_up_verbs
