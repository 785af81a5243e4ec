#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transfer/endpoint/fabric_endpoint_inside.h"
#include "transfer/endpoint/tcp_connections.h"

namespace pinion::transfer {

namespace {

/// The longest sleep: a process that ends wakes nobody.
constexpr Duration kLongestWait = 50 * kMillisecond;
/// How long the thread leaves progress to the program's threads before it looks at them again.
constexpr Duration kLeaveAlone = 2 * kMillisecond;
/// Of one call of progress(), so that it returns.
constexpr unsigned kMostEvents = 256;
/// How long a failure waits for news of its peer, longer than PeerTable takes to look at sixteen.
constexpr Duration kDoubt = 250 * kMillisecond;
/// Most messages on their way, in blocks of buffers beside those of the receives.
constexpr std::size_t kMostWireBuffers = 8 * WirePool::kBlock;

/// Codes by which providers report that the peer, or the way to it, is gone. A lost connection loses the
/// order of messages, so it ends the peer.
bool is_loss(int code) {
  constexpr int kLosses[] = {ECONNRESET,  EPIPE,        ECONNABORTED, ENOTCONN,  ESHUTDOWN, EHOSTUNREACH,
                             ENETUNREACH, ECONNREFUSED, ETIMEDOUT,    EHOSTDOWN, ECANCELED, ESRCH};
  return std::find(std::begin(kLosses), std::end(kLosses), code) != std::end(kLosses);
}

Error gone_error(Peer peer) { return Error::make(ECONNRESET, "process %u is gone", peer); }

}  // namespace

// ---- operations

Error OpenEndpoint::reachable(Peer peer) const {
  if (!connected_.load(std::memory_order_relaxed))
    return Error::make(ENOTCONN, "the endpoint is not connected");
  if (peer >= peers_.size())
    return Error::make(EINVAL, "there is no process %u among %u", peer, peers_.size());
  return peers_.is_here(peer) ? Error{} : gone_error(peer);
}

Error OpenEndpoint::failed(int code) const {
  return fabric_failure(code, "libfabric's provider %s cannot carry out a transfer", provider_.c_str());
}

void OpenEndpoint::end_later(OperationSlot& slot, int code, Time due) {
  operations_.end_later(slot, code, due);
  wait_.advanced();
}

/// The provider has let go of the slot, or has refused it.
void OpenEndpoint::give_back(OperationSlot& slot) {
  if (slot.wire != nullptr) messages_->give(slot.wire);
  if (slot.mapped_key) raw_keys_.unmap(objects_.domain, *slot.mapped_key);
  slot.mapped_key.reset();
}

/// The fate of a slot that was offered to the provider.
Error OpenEndpoint::posted(OperationSlot& slot, Peer peer, long result) {
  const int code = static_cast<int>(-result);
  if (code == 0) {
    peers_.note_touched(peer);
    wait_.busy();
    if (PeerTable::is_over(peers_.at(peer).condition.load())) strays_.store(true);
    return {};
  }
  const bool is_message = slot.wire != nullptr;
  give_back(slot);
  // A message that cannot leave: those after it would be out of order.
  const bool is_lost = code != FI_EAGAIN && (is_loss(code) || is_message);
  if (code != FI_EAGAIN && !is_lost) {
    conclude(slot, code);
    return {};
  }
  bool done_already = false;
  operations_.finish(slot, &done_already);
  if (done_already) return {};
  if (!is_lost) return Error::make(EAGAIN, "the provider's queue is full");
  peers_.note_loss(peer);
  return gone_error(peer);
}

/// Ends an operation that failed. Some codes leave open whether the peer is gone (sockets: ENOENT, EIO). That
/// shows a little later.
void OpenEndpoint::conclude(OperationSlot& slot, int code) {
  if (is_loss(code)) peers_.note_loss(slot.peer);
  end_later(slot, code, is_loss(code) ? 0 : monotonic_now() + kDoubt);
}

Error OpenEndpoint::transfer(Peer peer, std::span<const LocalMemory> local, const RemoteMemory& remote,
                             Operation& operation, bool put) {
  if (Error error = reachable(peer)) return error;
  if (local.size() > capabilities_.max_elements)
    return Error::make(EMSGSIZE, "%zu elements are more than the provider's %zu for a transfer", local.size(),
                       capabilities_.max_elements);
  std::array<iovec, kMostElements> elements;
  std::array<void*, kMostElements> descriptors;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < local.size(); ++i) {
    elements[i] = {local[i].address, local[i].bytes};
    descriptors[i] = local[i].descriptor;
    bytes += local[i].bytes;
  }
  if (bytes > capabilities_.max_transfer)
    return Error::make(EMSGSIZE, "%zu bytes are more than the provider's %zu for a transfer", bytes,
                       capabilities_.max_transfer);
  OperationSlot* const slot = operations_.take(peer, &operation);
  if (slot == nullptr) return Error::make(EAGAIN, "too many operations are under way");
  slot->gets = !put;
  if (bytes == 0) {
    end_later(*slot, 0, 0);
    return {};
  }
  std::uint64_t key = remote.key;
  if (remote.raw.bytes > 0 && objects_.has_mode(FI_MR_RAW)) {
    if (const int code = raw_keys_.map(objects_.domain, remote.raw, key)) return posted(*slot, peer, code);
    slot->mapped_key = key;
  }
  const fi_rma_iov target{remote.address, bytes, key};
  fi_msg_rma message{};
  message.msg_iov = elements.data();
  message.desc = descriptors.data();
  message.iov_count = local.size();
  message.addr = peers_.at(peer).address;
  message.rma_iov = &target;
  message.rma_iov_count = 1;
  message.context = slot;
  const ssize_t code = put ? fi_writemsg(objects_.endpoint, &message, FI_COMPLETION | objects_.delivery)
                           : fi_readmsg(objects_.endpoint, &message, FI_COMPLETION);
  return posted(*slot, peer, code);
}

Error OpenEndpoint::put_list(Peer to, std::span<const LocalMemory> from, RemoteMemory target,
                             Operation& operation) {
  return transfer(to, from, target, operation, true);
}

Error OpenEndpoint::get_list(Peer from, std::span<const LocalMemory> target, RemoteMemory source,
                             Operation& operation) {
  return transfer(from, target, source, operation, false);
}

/// Null: too many messages are on their way, or the registration of more memory failed.
WireBuffer* OpenEndpoint::wire_buffer() {
  WireBuffer* buffer = messages_->take();
  if (buffer == nullptr && messages_->made() < kMostWireBuffers && !messages_->grow())
    buffer = messages_->take();
  return buffer;
}

Error OpenEndpoint::send(Peer to, unsigned kind, const void* payload, std::size_t bytes,
                         Operation* operation) {
  if (Error error = reachable(to)) return error;
  if (bytes > capabilities_.max_message)
    return Error::make(EMSGSIZE, "%zu bytes are more than a message takes (%zu)", bytes,
                       capabilities_.max_message);
  return post_message(to, kind, payload, bytes, operation);
}

Error OpenEndpoint::post_message(Peer to, unsigned kind, const void* payload, std::size_t bytes,
                                 Operation* operation) {
  WireBuffer* const buffer = wire_buffer();
  if (buffer == nullptr) return Error::make(EAGAIN, "too many messages are on their way");
  OperationSlot* const slot = operations_.take(to, operation);
  if (slot == nullptr) {
    messages_->give(buffer);
    return Error::make(EAGAIN, "too many operations are under way");
  }
  slot->wire = buffer;
  if (bytes > 0) std::memcpy(buffer->bytes + kMessageHeader, payload, bytes);
  const iovec wire{buffer->bytes, kMessageHeader + bytes};
  fi_msg message{};
  message.msg_iov = &wire;
  message.desc = &buffer->descriptor;
  message.iov_count = 1;
  message.addr = peers_.at(to).address;
  message.context = slot;
  PeerTable::Entry& entry = peers_.at(to);
  ssize_t code = 0;
  {
    const std::lock_guard lock(entry.sending);
    write_header(buffer->bytes, entry.card.token, {own_.rank, kind, entry.sent + 1, nullptr, bytes});
    code = fi_sendmsg(objects_.endpoint, &message, FI_COMPLETION);
    if (code == 0) ++entry.sent;
  }
  return posted(*slot, to, code);
}

/// A message of the endpoint's own: when it cannot leave, the next one will.
void OpenEndpoint::send_own(Peer to, unsigned kind) {
  static_cast<void>(post_message(to, kind, nullptr, 0, nullptr));
}

void OpenEndpoint::disconnect(Peer peer) {
  if (reachable(peer) || peer == own_.rank) return;
  send_own(peer, kLeave);
  if (!peers_.cut_off(peer)) return;
  strays_.store(true);
  if (close_connections(peer)) peers_.note_loss(peer);
  wait_.advanced();
}

/// Closes the peer's connections. True: its bytes stay out of this process's memory from now on.
bool OpenEndpoint::close_connections(Peer peer) {
  const PeerTable::Entry& entry = peers_.at(peer);
  if (fabric_pins(provider_)) return true;  // keys end with their registrations
  const auto network = fabric_network(provider_);
  const bool is_tcp = network == "tcp" || network == "sockets" || network == "net";
  return is_tcp && entry.same_node && reset_tcp_connections(own_.address, entry.card);
}

// ---- progress

Error OpenEndpoint::post_receives() {
  while (!unposted_.empty()) {
    Receive* const receive = unposted_.back();
    const ssize_t code = fi_recv(objects_.endpoint, receive->buffer->bytes, WirePool::kBytes,
                                 receive->buffer->descriptor, FI_ADDR_UNSPEC, receive);
    if (code == -FI_EAGAIN) return {};
    if (code != 0)
      return fabric_failure(static_cast<int>(code), "libfabric's provider %s takes no receive",
                            provider_.c_str());
    unposted_.pop_back();
  }
  return {};
}

void OpenEndpoint::deliver(const void* wire, std::size_t bytes) {
  const auto message = read_message(wire, bytes, own_.token, own_.peers);
  if (!message) return;
  PeerTable::Entry& entry = peers_.at(message->from);
  peers_.note_heard(message->from, monotonic_now());
  if (message->kind == kLeave) peers_.note_loss(message->from);
  if (PeerTable::is_over(entry.condition.load())) {
    if (entry.cut.load() && message->kind != kLeave) send_own(message->from, kLeave);
    return;
  }
  if (message->number != ++entry.arrived) return peers_.note_loss(message->from);
  if (message->kind == kProbe) send_own(message->from, kAnswer);
  if (message->kind == kAnswer) entry.doubted = false;
  if (message->kind >= kKinds || handlers_[message->kind] == nullptr) return;
  handlers_[message->kind]->message(message->from, message->payload, message->bytes);
}

void OpenEndpoint::complete(const fi_cq_msg_entry& completion) {
  auto* const context = static_cast<Context*>(completion.op_context);
  if (context == nullptr) return;
  if (context->kind == Context::Kind::receive) {
    auto* const receive = static_cast<Receive*>(context);
    deliver(receive->buffer->bytes, std::min(completion.len, WirePool::kBytes));
    unposted_.push_back(receive);
    return;
  }
  auto& slot = *static_cast<OperationSlot*>(context);
  // A message only left; a transfer needed the peer.
  if (slot.wire == nullptr) peers_.note_heard(slot.peer, monotonic_now());
  give_back(slot);
  if (Operation* const operation = operations_.finish(slot)) operation->done({});
}

/// Whether there was one.
bool OpenEndpoint::take_error() {
  fi_cq_err_entry failure{};
  if (fi_cq_readerr(objects_.queue, &failure, 0) != 1) return false;
  auto* const context = static_cast<Context*>(failure.op_context);
  if (context == nullptr) return true;
  if (context->kind == Context::Kind::receive) {
    if (closing_.load()) return true;
    unposted_.push_back(static_cast<Receive*>(context));
    peers_.doubt_all();
    return true;
  }
  auto& slot = *static_cast<OperationSlot*>(context);
  const Peer peer = slot.peer;
  // Whatever the cause: the messages after it would be out of order.
  if (slot.wire != nullptr) peers_.note_loss(peer);
  give_back(slot);
  conclude(slot, failure.err);
  return true;
}

unsigned OpenEndpoint::drain() {
  unsigned events = 0;
  std::array<fi_cq_msg_entry, 16> completions{};
  while (events < kMostEvents) {
    const ssize_t count = fi_cq_read(objects_.queue, completions.data(), completions.size());
    if (count == -FI_EAVAIL) {
      if (!take_error()) break;
      ++events;
    } else if (count > 0) {
      for (ssize_t i = 0; i < count; ++i) complete(completions[static_cast<std::size_t>(i)]);
      events += static_cast<unsigned>(count);
    } else if (count == -FI_EAGAIN || count == 0) {
      break;
    } else {
      return events + give_up(static_cast<int>(-count));
    }
  }
  return events;
}

/// The queue is broken: operations under way end here, as do all peers, whose messages cannot arrive.
unsigned OpenEndpoint::give_up(int code) {
  for (Peer peer = 0; peer < peers_.size(); ++peer) peers_.note_loss(peer);
  unsigned events = 0;
  operations_.abandon_all([&](Operation& operation) {
    operation.done(failed(code));
    ++events;
  });
  return events;
}

unsigned OpenEndpoint::finish_endings() {
  const Time now = monotonic_now();
  const auto is_due = [&](Peer peer, Time due) { return due <= now || !peers_.is_here(peer); };
  unsigned events = 0;
  while (events < kMostEvents) {
    const OperationTable::Ending ending = operations_.take_ending(is_due);
    if (ending.operation == nullptr) break;
    const bool is_lost = is_loss(ending.code) || !peers_.is_here(ending.peer);
    ending.operation->done(ending.code == 0 ? Error{}
                           : is_lost        ? gone_error(ending.peer)
                                            : failed(ending.code));
    ++events;
  }
  return events;
}

/// Ends everything with peers that are gone.
unsigned OpenEndpoint::bury() {
  unsigned events = 0;
  peers_.settle(monotonic_now(), [&](Peer peer) {
    // It may have connected anew before it saw the end.
    if (peers_.at(peer).cut.load()) static_cast<void>(close_connections(peer));
    operations_.abandon(peer, OperationTable::Kinds::all,
                        [&](Operation& operation) { operation.done(gone_error(peer)); });
    for (MessageHandler* const handler : handlers_)
      if (handler != nullptr) handler->gone(peer);
    ++events;
  });
  return events;
}

/// Ends operations with peers that were cut off, or were gone when the operation was posted. A peer that is
/// cut off may still answer gets, so those wait until it is gone.
unsigned OpenEndpoint::end_strays() {
  if (!strays_.load() || !strays_.exchange(false)) return 0;
  unsigned events = 0;
  for (Peer peer = 0; peer < peers_.size(); ++peer) {
    const PeerTable::Condition condition = peers_.at(peer).condition.load();
    if (!PeerTable::is_over(condition)) continue;
    using Kinds = OperationTable::Kinds;
    const bool is_gone = condition == PeerTable::Condition::gone;
    operations_.abandon(peer, is_gone ? Kinds::all : Kinds::without_gets, [&](Operation& operation) {
      operation.done(gone_error(peer));
      ++events;
    });
  }
  return events;
}

unsigned OpenEndpoint::advance() {
  if (!connected_.load() || progressing_.exchange(true, std::memory_order_acquire)) return 0;
  unsigned events = finish_endings() + drain();
  static_cast<void>(post_receives());
  // With the queue empty, the last messages of peers that end have been delivered.
  if (events < kMostEvents) events += bury();
  events += end_strays();
  peers_.look(
      directory_, monotonic_now(), options_.silence, [this](Peer peer) { send_own(peer, kProbe); },
      [this](Peer peer) { return !post_message(peer, kLeave, nullptr, 0, nullptr); });
  progressing_.store(false, std::memory_order_release);
  if (events > 0) wait_.advanced();
  return events;
}

unsigned OpenEndpoint::progress() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  return advance();
}

void OpenEndpoint::wait(Duration at_most) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  wait_.wait(std::min(at_most, kLongestWait));
}

/// Progresses while no thread of the program does.
void OpenEndpoint::run() {
  std::uint64_t seen = calls_.load(std::memory_order_relaxed);
  while (stop_.load() == 0) {
    const std::uint64_t calls = calls_.load(std::memory_order_relaxed);
    if (calls != seen || wait_.waiting() > 0) {
      seen = calls;
      futex_wait(stop_, 0, monotonic_now() + kLeaveAlone);
    } else if (advance() == 0) {
      wait_.wait(kLongestWait);
    }
  }
}

}  // namespace pinion::transfer
#endif
