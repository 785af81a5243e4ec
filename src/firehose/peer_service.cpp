#include "firehose/peer_service.h"

#include <array>
#include <cerrno>

#include "firehose/courier.h"
#include "firehose/outbox.h"
#include "firehose/own_memory.h"
#include "firehose/strategy.h"
#include "transfer/endpoint/wire_pool.h"

namespace pinion::firehose {

/// Returns an errno value.
int PeerService::serve_scattered(const DataMessage& message, char* data, DataMessage& answer) const {
  std::array<iovec, transfer::WirePool::kBytes / sizeof(DataPiece)> pieces;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < message.operand; ++i) {
    const DataPiece piece = piece_of(message, i);
    if (!ways_.exposure.contains({piece.address, piece.address + piece.bytes})) return EPERM;
    pieces[i] = {reinterpret_cast<void*>(piece.address), piece.bytes};
    bytes += piece.bytes;
  }
  const std::span<const iovec> all(pieces.data(), message.operand);
  if (message.kind == DataMessage::Kind::scattered_put)
    return own_memory::write(
        all, static_cast<const char*>(message.payload) + message.operand * sizeof(DataPiece), bytes);
  const int error = own_memory::read(data, all, bytes);
  answer.payload = error ? nullptr : data;
  answer.bytes = error ? 0 : static_cast<std::uint32_t>(bytes);
  return error;
}

void PeerService::answer_to(Peer to, const DataMessage& answer) const {
  char header[kDataHeader];
  const std::size_t follows = encode(answer, header);
  static_cast<void>(ways_.outbox->send(to, kDataMessage, header, sizeof header, answer.payload, follows));
}

/// False: its memory is changing, and nothing was done.
bool PeerService::serve_atomic(Peer from, const DataMessage& message) const {
  const Range word{message.address, message.address + message.bytes};
  DataMessage answer;
  answer.request = message.request;
  if (ways_.is_cut_off(from)) {
    answer.error = ECONNRESET;
  } else if (!ways_.exposure.contains(word)) {
    answer.error = EPERM;
  } else {
    answer.error = own_memory::apply(message.address, message.bytes, message.operation, message.operand,
                                     message.compare, answer.operand);
    if (answer.error == EBUSY) return false;
  }
  if (!answer.error) ways_.strategy->served(word);
  answer_to(from, answer);
  return true;
}

bool PeerService::flush() {
  return waiting_.flush([this](Peer from, const DataMessage& atomic) { return serve_atomic(from, atomic); });
}

/// A peer's put, get or atomic, or the answer to one of this process's.
void PeerService::serve(Peer from, const void* payload, std::size_t bytes) {
  const std::size_t most = ways_.endpoint->capabilities().max_message - kDataHeader;
  const auto message = decode_data(payload, bytes, most);
  if (!message) return;
  if (message->kind == DataMessage::Kind::answer) return ways_.courier->answered(from, *message);
  DataMessage answer;
  answer.request = message->request;
  if (message->kind == DataMessage::Kind::atomic) {
    if (serve_atomic(from, *message)) return;
    answer.error = waiting_.add(from, *message);
    return answer.error ? answer_to(from, answer) : ways_.bell.ring();
  }
  const bool scattered =
      message->kind == DataMessage::Kind::scattered_put || message->kind == DataMessage::Kind::scattered_get;
  char data[transfer::WirePool::kBytes];
  if (ways_.is_cut_off(from)) {
    answer.error = ECONNRESET;
  } else if (scattered) {
    answer.error = serve_scattered(*message, data, answer);
  } else if (!ways_.exposure.contains({message->address, message->address + message->bytes})) {
    answer.error = EPERM;
  } else if (message->kind == DataMessage::Kind::put) {
    answer.error = own_memory::write(message->address, message->payload, message->bytes);
  } else {
    answer.error = own_memory::read(data, message->address, message->bytes);
    answer.payload = answer.error ? nullptr : data;
    answer.bytes = answer.error ? 0 : message->bytes;
  }
  if (!answer.error && !scattered)
    ways_.strategy->served({message->address, message->address + message->bytes});
  answer_to(from, answer);
}

}  // namespace pinion::firehose
