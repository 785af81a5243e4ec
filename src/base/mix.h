// Hashes a value into a hash. Stateless.
#pragma once

#include <cstdint>

namespace pinion {

inline std::uint64_t mix(std::uint64_t h, std::uint64_t value) {
  h ^= value + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xFF51AFD7ED558CCDull;
  return h ^ (h >> 32);
}

}  // namespace pinion
