#include "firehose/data_message.h"

#include <cstring>

#include "base/range.h"
#include "pinion/firehose.h"

namespace pinion::firehose {

namespace {

struct Header {
  std::uint8_t kind, operation, zero[6];
  std::uint32_t request, bytes;
  std::int32_t error;
  std::uint32_t zero_too;
  std::uint64_t address, operand, compare;
};
static_assert(sizeof(Header) == kDataHeader);

bool is_word(std::uint64_t address, std::size_t bytes) {
  return (bytes == 4 || bytes == 8) && address % bytes == 0;
}

/// Its pieces lie in memory, and are all of the payload, with their data if it puts.
bool has_pieces(const DataMessage& message, std::size_t payload, std::size_t most) {
  if (message.operand == 0 || message.operand > payload / sizeof(DataPiece)) return false;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.operand; ++i) {
    const DataPiece piece = piece_of(message, i);
    if (piece.bytes == 0 || piece.bytes > most || !is_addressable(piece.address, piece.bytes)) return false;
    bytes += piece.bytes;
  }
  const std::size_t list = message.operand * sizeof(DataPiece);
  if (message.kind == DataMessage::Kind::scattered_get) return bytes <= most && payload == list;
  return payload == list + bytes;
}

}  // namespace

std::size_t encode(const DataMessage& message, void* header) {
  Header out{};
  out.kind = static_cast<std::uint8_t>(message.kind);
  out.operation = message.operation;
  out.request = message.request;
  out.bytes = message.bytes;
  out.error = message.error;
  out.address = message.address;
  out.operand = message.operand;
  out.compare = message.compare;
  std::memcpy(header, &out, sizeof out);
  return message.payload ? message.bytes : 0;
}

std::optional<DataMessage> decode_data(const void* wire, std::size_t bytes, std::size_t most) {
  Header in;
  if (bytes < sizeof in) return {};
  std::memcpy(&in, wire, sizeof in);
  const std::size_t payload = bytes - sizeof in;
  DataMessage message{static_cast<DataMessage::Kind>(in.kind),
                      in.operation,
                      in.request,
                      in.bytes,
                      in.error,
                      in.address,
                      in.operand,
                      in.compare,
                      payload ? static_cast<const char*>(wire) + sizeof in : nullptr};
  bool fits = false;
  switch (message.kind) {
    case DataMessage::Kind::put:
      fits = payload == in.bytes && is_addressable(in.address, in.bytes);
      break;
    case DataMessage::Kind::get:
      fits = payload == 0 && in.bytes <= most && is_addressable(in.address, in.bytes);
      break;
    case DataMessage::Kind::atomic:
      fits = payload == 0 && is_word(in.address, in.bytes) && is_addressable(in.address, in.bytes) &&
             in.operation <= PINION_FIREHOSE_COMPARE_SWAP;
      break;
    case DataMessage::Kind::answer:
      fits = payload == in.bytes && in.error >= 0;
      break;
    case DataMessage::Kind::scattered_put:
    case DataMessage::Kind::scattered_get:
      fits = payload == in.bytes && has_pieces(message, payload, most);
      break;
  }
  if (!fits) return {};
  return message;
}

}  // namespace pinion::firehose
