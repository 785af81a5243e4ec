// Uses of memory that found it unregistered, from a run's logs: counted alike for the caches of libraries,
// whose registrations pass the verbs front under retention observe, and for Pinion.
#pragma once

#include <cstdint>
#include <string>

namespace pinion::cli {

struct UnregisteredUses {
  std::uint64_t all = 0;     ///< registered, waited or copied on the critical path
  std::uint64_t reuses = 0;  ///< of them, those from the third use of the same range on
  bool known = false;        ///< the logs have every event
};

/// A library's cache shows only the uses that it registers for: there the third registration counts as
/// the third use. Throws Failure, except where logs are missing.
UnregisteredUses unregistered_uses(const std::string& logs);

}  // namespace pinion::cli
