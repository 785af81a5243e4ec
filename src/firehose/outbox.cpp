#include "firehose/outbox.h"

#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "transfer/endpoint/wire_pool.h"

namespace pinion::firehose {

using Peer = transfer::Peer;

namespace {

/// A message that is put together for the endpoint.
class Letter {
 public:
  Letter(const void* head, std::size_t head_bytes, const void* payload, std::size_t bytes)
      : bytes_(head_bytes + bytes) {
    if (bytes_ > sizeof text_) return;
    std::memcpy(text_, head, head_bytes);
    if (bytes > 0) std::memcpy(text_ + head_bytes, payload, bytes);
  }
  bool fits() const { return bytes_ <= sizeof text_; }
  const char* data() const { return text_; }
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  char text_[transfer::WirePool::kBytes];
};

}  // namespace

Outbox::Outbox(transfer::Endpoint& endpoint, Peer peers, Bell* bell)
    : endpoint_(endpoint), peers_(peers), bell_(bell), queues_(std::make_unique<Queue[]>(peers)) {}

Error Outbox::send(Peer to, MessageKind kind, const void* head, std::size_t head_bytes, const void* payload,
                   std::size_t bytes) {
  const Letter letter(head, head_bytes, payload, bytes);
  if (!letter.fits()) return Error::make(EMSGSIZE, "%zu bytes are more than a message takes", bytes);
  Error error = post(to, kind, letter.data(), letter.bytes(), true);
  ring_if_needed();
  return error;
}

Error Outbox::try_send(Peer to, MessageKind kind, const void* head, std::size_t head_bytes,
                       const void* payload, std::size_t bytes) {
  const Letter letter(head, head_bytes, payload, bytes);
  if (!letter.fits()) return Error::make(EMSGSIZE, "%zu bytes are more than a message takes", bytes);
  return post(to, kind, letter.data(), letter.bytes(), false);
}

Error Outbox::post(Peer to, MessageKind kind, const char* message, std::size_t bytes, bool keep) {
  Queue& queue = queues_[to];
  const MutexLock lock(queue.mutex);
  Error error = Error::make(EAGAIN, "messages to process %u wait already", to);
  if (queue.messages.empty()) error = endpoint_.send(to, kind, message, bytes, nullptr);
  return error.code == EAGAIN && keep ? this->keep(queue, kind, message, bytes) : error;
}

Error Outbox::keep(Queue& queue, MessageKind kind, const char* message, std::size_t bytes) {
  try {
    queue.messages.push_back({kind, {message, message + bytes}});
  } catch (const std::bad_alloc&) {
    if (kind != kUserMessage) lose(queue);
    return Error::make(ENOMEM, "no memory to keep a message of %zu bytes", bytes);
  }
  kept_.fetch_add(1, std::memory_order_release);
  return {};
}

void Outbox::lose(Queue& queue) {
  if (!std::exchange(queue.lost, true)) lost_.fetch_add(1, std::memory_order_release);
}

void Outbox::lose(Peer peer) {
  {
    Queue& queue = queues_[peer];
    const MutexLock lock(queue.mutex);
    lose(queue);
  }
  ring_if_needed();
}

bool Outbox::take_lost(Peer& peer) {
  if (lost_.load(std::memory_order_acquire) == 0) return false;
  for (peer = 0; peer < peers_; ++peer) {
    Queue& queue = queues_[peer];
    const MutexLock lock(queue.mutex);
    if (!std::exchange(queue.lost, false)) continue;
    lost_.fetch_sub(1, std::memory_order_release);
    return true;
  }
  return false;
}

bool Outbox::flush() {
  if (kept_.load(std::memory_order_acquire) == 0) return true;
  for (Peer peer = 0; peer < peers_; ++peer) {
    Queue& queue = queues_[peer];
    const MutexLock lock(queue.mutex);
    while (!queue.messages.empty()) {
      const Kept& first = queue.messages.front();
      const Error error = endpoint_.send(peer, first.kind, first.bytes.data(), first.bytes.size(), nullptr);
      if (error.code == EAGAIN) break;
      // Another error is the peer's end, which the endpoint reports as well.
      queue.messages.pop_front();
      kept_.fetch_sub(1, std::memory_order_release);
    }
  }
  return kept_.load(std::memory_order_acquire) == 0;
}

std::size_t Outbox::kept(Peer peer) {
  Queue& queue = queues_[peer];
  const MutexLock lock(queue.mutex);
  return queue.messages.size();
}

void Outbox::drop(Peer peer) {
  Queue& queue = queues_[peer];
  const MutexLock lock(queue.mutex);
  kept_.fetch_sub(queue.messages.size(), std::memory_order_release);
  queue.messages.clear();
}

}  // namespace pinion::firehose
