// Puts, gets and atomics as active messages: one header, then the payload. That of scattered ones is the list
// of their pieces, and the data to put. Parsing trusts no byte of it.
// Stateless.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

namespace pinion::firehose {

struct DataMessage {
  enum class Kind : std::uint8_t { put = 1, get, atomic, answer, scattered_put, scattered_get };

  Kind kind = Kind::answer;
  std::uint8_t operation = 0;  ///< an atomic's pinion_firehose_operation
  std::uint32_t request = 0;   ///< the sender's number; an answer repeats it
  std::uint32_t bytes = 0;     ///< bytes to put or get, or of the atomic's word; else the payload's
  std::int32_t error = 0;      ///< an answer's errno value
  std::uint64_t address = 0;   ///< the receiver's memory
  std::uint64_t operand = 0;   ///< an atomic's; in an answer: the old value; if scattered: pieces
  std::uint64_t compare = 0;
  const void* payload = nullptr;  ///< data of a put, of scattered ones, and of an answer to a get
};

/// Returns a piece of a scattered put or get, at the receiver.
struct DataPiece {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
};
inline DataPiece piece_of(const DataMessage& message, std::size_t number) {
  DataPiece piece;
  std::memcpy(&piece, static_cast<const char*>(message.payload) + number * sizeof piece, sizeof piece);
  return piece;
}

constexpr std::size_t kDataHeader = 48;

/// Writes the header, and returns how many bytes of payload follow it.
std::size_t encode(const DataMessage& message, void* header);
/// None: damaged, or more is asked for than an answer of `most` bytes of payload holds.
std::optional<DataMessage> decode_data(const void* wire, std::size_t bytes, std::size_t most);

}  // namespace pinion::firehose
