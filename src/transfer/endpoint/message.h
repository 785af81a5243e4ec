// An active message on the wire: a header, then the payload. Parsing trusts no byte of it. Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace pinion::transfer {

/// Bytes of a header.
constexpr std::size_t kMessageHeader = 32;

/// The endpoint's own kinds, above those of handlers.
constexpr unsigned kProbe = 0x100;   ///< requests an answer
constexpr unsigned kAnswer = 0x101;  ///< the sender lives
constexpr unsigned kLeave = 0x102;   ///< the sender closes its endpoint

struct Message {
  std::uint32_t from = 0;
  unsigned kind = 0;
  std::uint32_t number = 0;  ///< counts the sender's messages to the receiver, from 1; wraps
  const void* payload = nullptr;
  std::size_t bytes = 0;
};

/// Writes the header of a message to `wire`. `token`: the receiver's.
void write_header(void* wire, std::uint64_t token, const Message& message);

/// The message in `bytes` bytes that arrived; its payload points into them. None: a stranger's, or damaged.
std::optional<Message> read_message(const void* wire, std::size_t bytes, std::uint64_t token,
                                    std::uint32_t peers);

}  // namespace pinion::transfer
