#include "transfer/endpoint/message.h"

#include <cstring>

#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

namespace {

/// Also shows a peer of the other byte order.
constexpr std::uint32_t kMagic = 0x50694d32;

struct Header {
  std::uint32_t magic, from;
  std::uint64_t token;
  std::uint32_t kind, bytes;
  std::uint32_t number, zero;
};
static_assert(sizeof(Header) == kMessageHeader);

}  // namespace

void write_header(void* wire, std::uint64_t token, const Message& message) {
  const auto bytes = static_cast<std::uint32_t>(message.bytes);
  const Header header{kMagic, message.from, token, message.kind, bytes, message.number, 0};
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
  return Message{header.from, header.kind, header.number, static_cast<const std::byte*>(wire) + sizeof header,
                 header.bytes};
}

}  // namespace pinion::transfer
