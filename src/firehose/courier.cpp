#include "firehose/courier.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "firehose/calls.h"
#include "firehose/messages.h"

namespace pinion::firehose {

Courier::Courier(Outbox& outbox, Calls& calls, Peer peers, std::size_t chunk)
    : outbox_(outbox), calls_(calls), peers_(peers), chunk_(chunk), lanes_(std::make_unique<Lane[]>(peers)) {}

void Courier::note_ended(Part& part, int error, Parts& ended) {
  part.error = error;
  ended.push_back(part);
}

void Courier::finish_all(Parts& ended) const {
  while (Part* const part = ended.pop_front()) calls_.answered(*part, part->error);
}

void Courier::by_message(Part& part) {
  parts_.fetch_add(1, std::memory_order_relaxed);
  part.call->went(Way::message);
  carry(part);
}

void Courier::carry(Part& part) {
  Parts ended;
  Lane& lane = lanes_[part.peer];
  {
    const MutexLock lock(lane.mutex);
    part.asked = 0;
    part.unanswered = 0;
    lane.waiting.push_back(part);
    pump(part.peer, lane, ended);
  }
  finish_all(ended);
}

/// Writes a request for the part's next `most` bytes; returns how many follow the header from request.local.
std::size_t Courier::write_request(const Part& part, Request& request, std::uint32_t number, std::size_t most,
                                   char* header) {
  DataMessage message;
  message.request = number;
  message.address = part.remote + part.asked;
  message.bytes = static_cast<std::uint32_t>(std::min(part.bytes - part.asked, most));
  request.local = part.local + part.asked;
  request.bytes = message.bytes;
  switch (part.kind) {
    case PartKind::put:
      message.kind = DataMessage::Kind::put;
      message.payload = request.local;
      break;
    case PartKind::get:
      message.kind = DataMessage::Kind::get;
      break;
    case PartKind::atomic:
      message.kind = DataMessage::Kind::atomic;
      message.operation = part.operation;
      message.operand = part.operand;
      message.compare = part.compare;
      break;
    case PartKind::scattered_put:
    case PartKind::scattered_get: {
      const bool puts = part.kind == PartKind::scattered_put;
      message.kind = puts ? DataMessage::Kind::scattered_put : DataMessage::Kind::scattered_get;
      message.payload = request.local;
      message.operand = part.operand;
      break;
    }
  }
  return encode(message, header);
}

Error Courier::post(Peer peer, Part& part, Request& request, std::uint32_t number) {
  char header[kDataHeader];
  const std::size_t payload = write_request(part, request, number, chunk_, header);
  return outbox_.try_send(peer, kDataMessage, header, sizeof header, request.local, payload);
}

bool Courier::ride(Part& part, const void* head, std::size_t bytes) {
  if (part.bytes + bytes > chunk_) return false;
  Lane& lane = lanes_[part.peer];
  const MutexLock lock(lane.mutex);
  const auto free = std::find_if(lane.requests.begin(), lane.requests.end(),
                                 [](const Request& request) { return request.part == nullptr; });
  if (!lane.waiting.empty() || free == lane.requests.end()) return false;
  part.asked = 0;
  const auto number = static_cast<std::uint32_t>(free - lane.requests.begin());
  char both[kMostMessage + kDataHeader];
  std::memcpy(both, head, bytes);
  const std::size_t payload =
      write_request(part, *free, ++free->uses << kRequestBits | number, part.bytes, both + bytes);
  if (outbox_.send(part.peer, kControlMessage, both, bytes + kDataHeader, free->local, payload)) return false;
  free->part = &part;
  part.asked = part.bytes;
  part.unanswered = 1;
  riders_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

/// Posts requests while the window and the endpoint have room.
void Courier::pump(Peer peer, Lane& lane, Parts& ended) {
  bool stalled = false;
  for (std::uint32_t i = 0; i < kWindow && !lane.waiting.empty(); ++i) {
    Request& request = lane.requests[i];
    if (request.part != nullptr) continue;
    Part& part = *lane.waiting.front();
    ++request.uses;
    const Error error = post(peer, part, request, request.uses << kRequestBits | i);
    if (error.code == EAGAIN) {
      stalled = true;
      break;
    }
    if (error) {
      part.call->fail(error.code);
      part.asked = part.bytes;
    } else {
      request.part = &part;
      ++part.unanswered;
      part.asked += request.bytes;
    }
    if (part.asked < part.bytes) continue;
    lane.waiting.pop_front();
    if (part.unanswered == 0) note_ended(part, error.code, ended);
  }
  if (stalled != lane.stalled) stalled_.fetch_add(stalled ? 1 : -1U, std::memory_order_release);
  lane.stalled = stalled;
}

/// Takes what came back. Returns an errno value.
int Courier::take(const Part& part, const Request& request, const DataMessage& answer) {
  if (answer.error) return answer.error;
  std::size_t expected = part.kind == PartKind::get ? request.bytes : 0;
  if (part.scattered) expected = part.scattered->answer;
  if (answer.bytes != expected) return EPROTO;
  if (part.kind == PartKind::get) std::memcpy(request.local, answer.payload, answer.bytes);
  if (part.kind == PartKind::atomic && request.local)
    std::memcpy(request.local, &answer.operand, sizeof answer.operand);
  if (part.kind != PartKind::scattered_get) return 0;
  const char* data = static_cast<const char*>(answer.payload);
  for (const pinion_firehose_piece& piece : part.scattered->targets) {
    std::memcpy(piece.local, data, piece.bytes);
    data += piece.bytes;
  }
  return 0;
}

void Courier::answered(Peer from, const DataMessage& answer) {
  Parts ended;
  Lane& lane = lanes_[from];
  {
    const MutexLock lock(lane.mutex);
    Request& request = lane.requests[answer.request % kWindow];
    Part* const part = request.part;
    if (part == nullptr || request.uses << kRequestBits != answer.request - answer.request % kWindow) return;
    if (const int error = take(*part, request, answer)) part->call->fail(error);
    request.part = nullptr;
    if (--part->unanswered == 0 && part->asked == part->bytes) note_ended(*part, 0, ended);
    pump(from, lane, ended);
  }
  finish_all(ended);
}

bool Courier::flush() {
  if (stalled_.load(std::memory_order_acquire) == 0) return true;
  Parts ended;
  for (Peer peer = 0; peer < peers_; ++peer) {
    Lane& lane = lanes_[peer];
    const MutexLock lock(lane.mutex);
    if (lane.stalled) pump(peer, lane, ended);
  }
  finish_all(ended);
  return stalled_.load(std::memory_order_acquire) == 0;
}

void Courier::end(Peer peer, int error) {
  Parts ended;
  Lane& lane = lanes_[peer];
  {
    const MutexLock lock(lane.mutex);
    for (Request& request : lane.requests) {
      Part* const part = request.part;
      request.part = nullptr;
      if (part != nullptr && --part->unanswered == 0 && part->asked == part->bytes)
        note_ended(*part, error, ended);
    }
    while (Part* const part = lane.waiting.pop_front()) note_ended(*part, error, ended);
    if (lane.stalled) stalled_.fetch_sub(1, std::memory_order_release);
    lane.stalled = false;
  }
  finish_all(ended);
}

}  // namespace pinion::firehose
