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
#include "transfer/endpoint/progressing.h"
#include "transfer/endpoint/tcp_connections.h"

namespace pinion::transfer {

namespace {

/// The longest sleep: a process that ends wakes nobody.
constexpr Duration kLongestWait = 50 * kMillisecond;
/// The time for which the thread leaves progress to the program's threads before it looks at them again.
constexpr Duration kLeaveAlone = 2 * kMillisecond;
/// Most events of one call of progress(), so that it returns.
constexpr unsigned kMostEvents = 256;

}  // namespace

// ---- operations

Error OpenEndpoint::reachable(Peer peer) const {
  if (!connected_.load(std::memory_order_relaxed))
    return Error::make(ENOTCONN, "the endpoint is not connected");
  if (peer >= peers_.size())
    return Error::make(EINVAL, "there is no process %u among %u", peer, peers_.size());
  return peers_.is_here(peer) ? Error{} : gone_error(peer);
}

Error OpenEndpoint::put_list(Peer to, std::span<const LocalMemory> from, RemoteMemory target,
                             Operation& operation) {
  if (Error error = reachable(to)) return error;
  return posting_.transfer(to, from, target, operation, true);
}

Error OpenEndpoint::get_list(Peer from, std::span<const LocalMemory> target, RemoteMemory source,
                             Operation& operation) {
  if (Error error = reachable(from)) return error;
  return posting_.transfer(from, target, source, operation, false);
}

Error OpenEndpoint::send(Peer to, unsigned kind, const void* payload, std::size_t bytes,
                         Operation* operation) {
  if (Error error = reachable(to)) return error;
  if (bytes > capabilities_.max_message)
    return Error::make(EMSGSIZE, "%zu bytes are more than a message takes (%zu)", bytes,
                       capabilities_.max_message);
  return posting_.message(self(), to, kind, payload, bytes, operation);
}

/// Sends a message of the endpoint's own. False: it cannot leave; the next one will.
bool OpenEndpoint::send_own(Peer to, unsigned kind) {
  return !posting_.message(self(), to, kind, nullptr, 0, nullptr);
}

void OpenEndpoint::disconnect(Peer peer) {
  if (reachable(peer) || peer == self()) return;
  send_own(peer, kLeave);
  if (!peers_.cut_off(peer)) return;
  posting_.note_strays();
  if (close_connections(peer)) peers_.note_loss(peer);
  wait_.advanced();
}

/// Closes the peer's connections. True: its bytes stay out of this process's memory from now on.
bool OpenEndpoint::close_connections(Peer peer) {
  const PeerTable::Entry& entry = peers_.at(peer);
  if (fabric_pins(meeting_.own().provider)) return true;  // keys end with their registrations
  const auto network = fabric_network(meeting_.own().provider);
  const bool is_tcp = network == "tcp" || network == "sockets" || network == "net";
  return is_tcp && entry.same_node && reset_tcp_connections(meeting_.own().address, entry.card);
}

// ---- progress

/// A message in another peer's name is dropped.
void OpenEndpoint::deliver(const void* wire, std::size_t bytes, fi_addr_t source) {
  const auto message = read_message(wire, bytes, meeting_.own().token, peers());
  if (!message || !peers_.may_be_from(message->from, source)) return;
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

void OpenEndpoint::complete(const fi_cq_msg_entry& completion, fi_addr_t source) {
  auto* const context = static_cast<Context*>(completion.op_context);
  if (context == nullptr) return;
  if (context->kind == Context::Kind::receive) {
    auto& receive = static_cast<Receives::Receive&>(*context);
    deliver(receive.buffer->bytes, std::min(completion.len, WirePool::kBytes), source);
    receives_.returned(receive);
    return;
  }
  posting_.completed(static_cast<OperationSlot&>(*context));
}

/// Takes one error off the queue. False: there is none.
bool OpenEndpoint::take_error() {
  fi_cq_err_entry failure{};
  if (fi_cq_readerr(objects_.queue, &failure, 0) != 1) return false;
  auto* const context = static_cast<Context*>(failure.op_context);
  if (context == nullptr) return true;
  if (context->kind == Context::Kind::receive) {
    if (closing_.load()) return true;
    receives_.returned(static_cast<Receives::Receive&>(*context));
    peers_.doubt_all();
    return true;
  }
  posting_.failed(static_cast<OperationSlot&>(*context), failure.err);
  return true;
}

unsigned OpenEndpoint::drain() {
  unsigned events = 0;
  std::array<fi_cq_msg_entry, 16> completions{};
  std::array<fi_addr_t, 16> sources{};
  while (events < kMostEvents) {
    const ssize_t count = objects_.read(completions, sources);
    if (count == -FI_EAVAIL) {
      if (!take_error()) break;
      ++events;
    } else if (count > 0) {
      const auto read = static_cast<std::size_t>(count);
      for (std::size_t i = 0; i < read; ++i) complete(completions[i], sources[i]);
      events += static_cast<unsigned>(read);
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
  return posting_.end_all(posting_.failure(code));
}

/// Ends everything with peers that are gone.
unsigned OpenEndpoint::bury() {
  unsigned events = 0;
  peers_.report_ended(monotonic_now(), [&](Peer peer) {
    // It may have connected anew before it saw the end.
    if (peers_.at(peer).cut.load()) static_cast<void>(close_connections(peer));
    posting_.end_all(peer);
    for (MessageHandler* const handler : handlers_)
      if (handler != nullptr) handler->gone(peer);
    ++events;
  });
  return events;
}

unsigned OpenEndpoint::advance() {
  if (!connected_.load() || progressing_.exchange(true, std::memory_order_acquire)) return 0;
  const Progressing inside;
  unsigned events = posting_.end_due(kMostEvents) + drain();
  static_cast<void>(receives_.post(objects_));
  // With the queue empty, the last messages of peers that end have been delivered.
  if (events < kMostEvents) events += bury();
  events += posting_.end_strays();
  peers_.look(
      meeting_.directory(), monotonic_now(), silence_, [this](Peer peer) { send_own(peer, kProbe); },
      [this](Peer peer) { return send_own(peer, kLeave); });
  progressing_.store(false, std::memory_order_release);
  if (events > 0) wait_.advanced();
  return events;
}

unsigned OpenEndpoint::progress() {
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (!Progressing::is()) posting_.make_buffers();
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
