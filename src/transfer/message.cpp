#include "transfer/message.h"

#include <cstring>

#include "transfer/endpoint.h"

namespace pinion::transfer {

namespace {

/// Also shows a peer of the other byte order.
constexpr std::uint32_t kMagic = 0x50694d31;

struct Header {
  std::uint32_t magic, from;
  std::uint64_t token;
  std::uint32_t kind, bytes;
};
static_assert(sizeof(Header) == kMessageHeader);

}  // namespace

void write_header(void* wire, std::uint64_t token, const Message& message) {
  const Header header{kMagic, message.from, token, message.kind, static_cast<std::uint32_t>(message.bytes)};
  std::memcpy(wire, &header, sizeof header);
}

std::optional<Message> read_message(const void* wire, std::size_t bytes, std::uint64_t token,
                                    std::uint32_t peers) {
  Header header;
  if (bytes < sizeof header) return std::nullopt;
  std::memcpy(&header, wire, sizeof header);
  const bool kind = header.kind < Endpoint::kKinds || (header.kind >= kProbe && header.kind <= kLeave);
  if (header.magic != kMagic || header.token != token || header.from >= peers || !kind ||
      header.bytes != bytes - sizeof header)
    return std::nullopt;
  return Message{header.from, header.kind, static_cast<const std::byte*>(wire) + sizeof header, header.bytes};
}

}  // namespace pinion::transfer
