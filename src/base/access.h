// Access rights of a registration.
// Pure values, callable from anywhere.
#pragma once

#include <cstdint>

namespace pinion {

/// The rights of a transfer over registered memory. `write` is local write (a receive); the rights of remote
/// peers are separate. A region serves a request when its rights are a superset of the request's.
enum class Access : std::uint8_t {
  read = 0,
  write = 1,
  remote_read = 2,
  remote_write = 4,
  all = 7,
};

constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool includes(Access have, Access want) {
  return (static_cast<std::uint8_t>(want) & ~static_cast<std::uint8_t>(have)) == 0;
}
/// Whether the device itself must be able to write: where a peer may write, it must too.
constexpr bool writes(Access access) {
  return includes(access, Access::write) || includes(access, Access::remote_write);
}
/// The rights of the device itself.
constexpr Access local_part(Access access) { return writes(access) ? Access::write : Access::read; }

}  // namespace pinion
