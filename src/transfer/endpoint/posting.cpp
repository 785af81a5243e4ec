#include "transfer/endpoint/posting.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transfer/endpoint/message.h"

namespace pinion::transfer {

namespace {

/// The time that a failure waits for news of its peer, longer than PeerTable takes to look at sixteen.
constexpr Duration kDoubt = 250 * kMillisecond;
/// Most messages on their way, in blocks of buffers beside those of the receives.
constexpr std::size_t kMostWireBuffers = 8 * WirePool::kBlock;

}  // namespace

/// A lost connection loses the order of messages, so it ends the peer.
bool is_loss(int code) {
  constexpr int kLosses[] = {ECONNRESET,  EPIPE,        ECONNABORTED, ENOTCONN,  ESHUTDOWN, EHOSTUNREACH,
                             ENETUNREACH, ECONNREFUSED, ETIMEDOUT,    EHOSTDOWN, ECANCELED, ESRCH};
  return std::find(std::begin(kLosses), std::end(kLosses), code) != std::end(kLosses);
}

Error gone_error(Peer peer) { return Error::make(ECONNRESET, "process %u is gone", peer); }

Error Posting::failure(int code) const {
  return fabric_failure(code, "libfabric's provider %s cannot carry out a transfer", capabilities_.provider);
}

void Posting::end_later(OperationSlot& slot, int code, Time due) {
  operations_.end_later(slot, code, due);
  wait_.advanced();
}

/// The provider has let go of the slot, or has refused it.
void Posting::give_back(OperationSlot& slot) {
  if (slot.wire != nullptr) messages_->give(slot.wire);
  if (slot.mapped_key) raw_keys_.unmap(objects_.domain, *slot.mapped_key);
  slot.mapped_key.reset();
}

/// The fate of a slot that was offered to the provider.
Error Posting::posted(OperationSlot& slot, Peer peer, long result) {
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
void Posting::conclude(OperationSlot& slot, int code) {
  if (is_loss(code)) peers_.note_loss(slot.peer);
  end_later(slot, code, is_loss(code) ? 0 : monotonic_now() + kDoubt);
}

Error Posting::transfer(Peer peer, std::span<const LocalMemory> local, const RemoteMemory& remote,
                        Operation& operation, bool put) {
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

/// Returns null if too many messages are on their way.
WireBuffer* Posting::wire_buffer() {
  WireBuffer* const buffer = messages_->take();
  if (buffer == nullptr) lacks_buffers_.store(true, std::memory_order_relaxed);
  return buffer;
}

void Posting::make_buffers() {
  if (!lacks_buffers_.load(std::memory_order_relaxed) || !lacks_buffers_.exchange(false)) return;
  // Messages wait for those on their way where it fails.
  if (messages_->made() < kMostWireBuffers) static_cast<void>(messages_->grow());
}

Error Posting::message(Peer from, Peer to, unsigned kind, const void* payload, std::size_t bytes,
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
    const MutexLock lock(entry.sending);
    write_header(buffer->bytes, entry.card.token, {from, kind, entry.sent + 1, nullptr, bytes});
    code = fi_sendmsg(objects_.endpoint, &message, FI_COMPLETION);
    if (code == 0) ++entry.sent;
  }
  return posted(*slot, to, code);
}

void Posting::completed(OperationSlot& slot) {
  // A message only left; a transfer needed the peer.
  if (slot.wire == nullptr) peers_.note_heard(slot.peer, monotonic_now());
  give_back(slot);
  if (Operation* const operation = operations_.finish(slot)) operation->done({});
}

void Posting::failed(OperationSlot& slot, int code) {
  // Whatever the cause: the messages after it would be out of order.
  if (slot.wire != nullptr) peers_.note_loss(slot.peer);
  give_back(slot);
  conclude(slot, code);
}

unsigned Posting::end_due(unsigned most) {
  const Time now = monotonic_now();
  const auto is_due = [&](Peer peer, Time due) { return due <= now || !peers_.is_here(peer); };
  unsigned events = 0;
  while (events < most) {
    const OperationTable::Ending ending = operations_.take_ending(is_due);
    if (ending.operation == nullptr) break;
    const bool is_lost = is_loss(ending.code) || !peers_.is_here(ending.peer);
    ending.operation->done(ending.code == 0 ? Error{}
                           : is_lost        ? gone_error(ending.peer)
                                            : failure(ending.code));
    ++events;
  }
  return events;
}

unsigned Posting::end_strays() {
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

void Posting::end_all(Peer peer) {
  operations_.abandon(peer, OperationTable::Kinds::all,
                      [&](Operation& operation) { operation.done(gone_error(peer)); });
}

unsigned Posting::end_all(const Error& error) {
  unsigned events = 0;
  operations_.abandon_all([&](Operation& operation) {
    operation.done(error);
    ++events;
  });
  return events;
}

}  // namespace pinion::transfer
#endif
