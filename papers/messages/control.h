// The control messages of the protocols (large_messages.h), as bytes. One record for all kinds, with a raw
// key behind it where the source has one; fields that a kind does not use are zero. decode() checks each
// field alone; the channel checks it against its own state. Stateless; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transfer/endpoint/endpoint.h"

namespace pinion::transfer {

enum class ControlKind : std::uint8_t {
  announce = 1,  ///< sender: a message of `total` bytes; its first `bytes` bytes may be read already
  segment,       ///< sender: `bytes` bytes from `offset` on may be read
  accept,        ///< receiver: the message has met its receive
  pulled,        ///< receiver: has read a segment, and does not again
  refuse,        ///< receiver: ends the message, and reads nothing more of it
};

struct Control {
  ControlKind kind = ControlKind::announce;
  std::uint16_t code = 0;     ///< refuse: an errno value
  std::uint64_t message = 0;  ///< the sender numbers its messages to a peer from 0 on
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  RemoteMemory source = {};
};

/// Longer messages are none.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 48;

/// The longest; most are shorter by a raw key.
constexpr std::size_t kMostControlBytes = 64 + RawKey::kMost;

class ControlRecord {
 public:
  explicit ControlRecord(std::size_t bytes) : size_(bytes) {}
  unsigned char* data() { return bytes_.data(); }
  const unsigned char* data() const { return bytes_.data(); }
  std::size_t size() const { return size_; }
  unsigned char& operator[](std::size_t at) { return bytes_[at]; }
  bool operator==(const ControlRecord&) const = default;

 private:
  std::array<unsigned char, kMostControlBytes> bytes_{};
  std::size_t size_;
};

ControlRecord encode(const Control& control);
/// False: these bytes are something else.
bool decode(const void* payload, std::size_t bytes, Control& control);

}  // namespace pinion::transfer
