// Endpoints of one process, joined in memory: a double of src/transfer/endpoint/endpoint.h. A put or get is
// checked against the registrations of both sides when it moves its data; the order and delay of completions
// come from a seed. Tests fill the queues, refuse registrations, fail gets and cut connections. Any thread;
// everything is behind one lock, but callbacks.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "pinion/pinion.h"
#include "transfer/endpoint/endpoint.h"

namespace pinion::test {

class MadeNetwork;

class MadeEndpoint final : public transfer::Endpoint {
 public:
  MadeEndpoint(MadeNetwork& network, transfer::Peer self);
  ~MadeEndpoint() {
    if (domain_) static_cast<void>(pinion_domain_close(domain_));
  }

  transfer::Peer self() const override { return self_; }
  transfer::Peer peers() const override;
  const transfer::EndpointCapabilities& capabilities() const override { return capabilities_; }
  pinion_domain* domain() const override { return domain_; }

  Error put_list(transfer::Peer, std::span<const transfer::LocalMemory>, transfer::RemoteMemory,
                 transfer::Operation&) override {
    return Error::make(ENOSYS, "no protocol puts");
  }
  Error get_list(transfer::Peer from, std::span<const transfer::LocalMemory> targets,
                 transfer::RemoteMemory source, transfer::Operation& operation) override;
  Error send(transfer::Peer to, unsigned kind, const void* payload, std::size_t bytes,
             transfer::Operation* operation) override;
  void disconnect(transfer::Peer) override {}
  void handle(unsigned, transfer::MessageHandler& handler) override { handler_ = &handler; }
  unsigned progress() override;
  void wait(Duration) override { std::this_thread::yield(); }

  /// Closes the domain: false while leases are out.
  bool close_domain() {
    if (pinion_domain_close(domain_) != 0) return false;
    domain_ = nullptr;
    return true;
  }
  std::size_t registrations();

  // The test sets these.
  transfer::EndpointCapabilities capabilities_{.provider = "made",
                                               .max_message = 256,
                                               .max_transfer = std::size_t{1} << 40,
                                               .automatic_progress = false};
  std::function<int(void*, std::size_t, unsigned)> refuse;  ///< the errno of a registration; 0: it is made
  bool offsets = false;  ///< peers use offsets into a registration, instead of addresses

 private:
  friend class MadeNetwork;
  struct Registration {
    char* address;
    std::size_t bytes;
    unsigned access;
    std::uint64_t remote_base;
  };
  struct PendingGet {
    transfer::Peer from;
    transfer::LocalMemory target;
    transfer::RemoteMemory source;
    transfer::Operation* operation;
  };
  struct Message {
    transfer::Peer from;
    std::vector<char> payload;
  };

  static int register_memory(void* context, void* address, std::size_t bytes, unsigned access,
                             pinion_registration* made);
  static int deregister_memory(void* context, std::uint64_t handle);
  Error move(const PendingGet& get);

  MadeNetwork& network_;
  const transfer::Peer self_;
  pinion_domain* domain_ = nullptr;
  transfer::MessageHandler* handler_ = nullptr;
  std::mutex delivers_;
  // Guarded by the network's lock.
  std::map<std::uint64_t, Registration> registrations_;
  std::uint64_t next_key_ = 1;
  std::deque<PendingGet> gets_;
  std::deque<Message> arrived_;
  std::vector<transfer::Peer> gone_;
};

class MadeNetwork {
 public:
  explicit MadeNetwork(transfer::Peer peers, unsigned seed = 1) : random_(seed), cut_(peers) {
    for (transfer::Peer peer = 0; peer < peers; ++peer)
      endpoints_.push_back(std::make_unique<MadeEndpoint>(*this, peer));
  }
  MadeEndpoint& operator[](transfer::Peer peer) { return *endpoints_[peer]; }
  transfer::Peer peers() const { return static_cast<transfer::Peer>(endpoints_.size()); }

  /// Cuts the peer off, both ways.
  void cut(transfer::Peer peer) {
    const std::lock_guard lock(mutex_);
    if (cut_[peer]) return;
    cut_[peer] = true;
    for (const auto& endpoint : endpoints_) {
      if (endpoint->self_ == peer) continue;
      endpoint->gone_.push_back(peer);
      endpoints_[peer]->gone_.push_back(endpoint->self_);
    }
  }

  // The test sets these, before traffic.
  std::size_t queue = 1024;            ///< gets, and messages, that an endpoint holds
  unsigned percent_now = 100;          ///< chance that an operation is done by one progress()
  std::size_t failing_get = SIZE_MAX;  ///< the number of a get that fails

  /// Gets that the own registrations refused.
  std::size_t bad_writes() {
    const std::lock_guard lock(mutex_);
    return bad_writes_;
  }
  /// Gets that the peer's registrations refused.
  std::size_t bad_reads() {
    const std::lock_guard lock(mutex_);
    return bad_reads_;
  }
  std::size_t gets() {
    const std::lock_guard lock(mutex_);
    return moved_;
  }

 private:
  friend class MadeEndpoint;
  bool now() { return std::uniform_int_distribution<unsigned>(1, 100)(random_) <= percent_now; }
  bool is_cut(transfer::Peer a, transfer::Peer b) const { return a != b && (cut_[a] || cut_[b]); }

  std::mutex mutex_;
  std::mt19937 random_;
  std::vector<bool> cut_;
  std::size_t moved_ = 0;
  std::size_t bad_writes_ = 0;
  std::size_t bad_reads_ = 0;
  std::vector<std::unique_ptr<MadeEndpoint>> endpoints_;
};

inline MadeEndpoint::MadeEndpoint(MadeNetwork& network, transfer::Peer self)
    : network_(network), self_(self) {
  pinion_device_operations operations{};
  operations.size = sizeof operations;
  operations.version = PINION_DEVICE_VERSION;
  operations.flags = PINION_DEVICE_PINS_NOTHING;
  operations.context = this;
  operations.register_memory = register_memory;
  operations.deregister_memory = deregister_memory;
  if (pinion_domain_open_operations(&operations, &domain_) != 0) std::abort();
}

inline transfer::Peer MadeEndpoint::peers() const { return network_.peers(); }

inline std::size_t MadeEndpoint::registrations() {
  const std::lock_guard lock(network_.mutex_);
  return registrations_.size();
}

inline int MadeEndpoint::register_memory(void* context, void* address, std::size_t bytes, unsigned access,
                                         pinion_registration* made) {
  auto& self = *static_cast<MadeEndpoint*>(context);
  if (self.refuse) {
    if (const int code = self.refuse(address, bytes, access)) return code;
  }
  const std::lock_guard lock(self.network_.mutex_);
  made->handle = made->remote_key = self.next_key_++;
  made->descriptor = reinterpret_cast<void*>(made->handle);
  if (self.offsets) made->remote_base = 0;
  self.registrations_[made->handle] = {static_cast<char*>(address), bytes, access, made->remote_base};
  return 0;
}

inline int MadeEndpoint::deregister_memory(void* context, std::uint64_t handle) {
  auto& self = *static_cast<MadeEndpoint*>(context);
  const std::lock_guard lock(self.network_.mutex_);
  return self.registrations_.erase(handle) == 1 ? 0 : EINVAL;
}

inline Error MadeEndpoint::get_list(transfer::Peer from, std::span<const transfer::LocalMemory> targets,
                                    transfer::RemoteMemory source, transfer::Operation& operation) {
  if (targets.size() != 1) return Error::make(ENOSYS, "no protocol gets lists");
  const transfer::LocalMemory& target = targets[0];
  const std::lock_guard lock(network_.mutex_);
  if (network_.is_cut(self_, from)) return Error::make(ECONNRESET, "peer %u is gone", from);
  if (target.bytes > capabilities_.max_transfer) return Error::make(EMSGSIZE, "too long");
  if (gets_.size() >= network_.queue) return Error::make(EAGAIN, "full");
  gets_.push_back({from, target, source, &operation});
  return {};
}

inline Error MadeEndpoint::send(transfer::Peer to, unsigned, const void* payload, std::size_t bytes,
                                transfer::Operation* operation) {
  const std::lock_guard lock(network_.mutex_);
  if (operation) return Error::make(ENOSYS, "no protocol asks");
  if (network_.is_cut(self_, to)) return Error::make(ECONNRESET, "peer %u is gone", to);
  std::deque<Message>& queue = network_[to].arrived_;
  if (queue.size() >= network_.queue) return Error::make(EAGAIN, "full");
  const auto* const begin = static_cast<const char*>(payload);
  queue.push_back({self_, {begin, begin + bytes}});
  return {};
}

/// Moves as a NIC would: both registrations allow it, or nothing moves.
inline Error MadeEndpoint::move(const PendingGet& get) {
  MadeEndpoint& peer = network_[get.from];
  if (network_.moved_++ == network_.failing_get) return Error::make(EIO, "injected");
  const auto local = registrations_.find(reinterpret_cast<std::uint64_t>(get.target.descriptor));
  const auto remote = peer.registrations_.find(get.source.key);
  auto* const target = static_cast<char*>(get.target.address);
  if (local == registrations_.end() || !(local->second.access & PINION_ACCESS_WRITE) ||
      target < local->second.address ||
      target + get.target.bytes > local->second.address + local->second.bytes) {
    ++network_.bad_writes_;
    return Error::make(EACCES, "local");
  }
  if (remote == peer.registrations_.end() || !(remote->second.access & PINION_ACCESS_REMOTE_READ) ||
      get.source.address < remote->second.remote_base ||
      get.source.address - remote->second.remote_base > remote->second.bytes ||
      get.target.bytes > remote->second.bytes - (get.source.address - remote->second.remote_base)) {
    ++network_.bad_reads_;
    return Error::make(EACCES, "remote");
  }
  // The kernel copies: the peer may have unmapped it.
  const iovec to{target, get.target.bytes};
  const iovec from{remote->second.address + (get.source.address - remote->second.remote_base),
                   get.target.bytes};
  if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != static_cast<ssize_t>(get.target.bytes))
    return Error::make(EFAULT, "the memory is gone");
  return {};
}

inline unsigned MadeEndpoint::progress() {
  // One thread at a time, so messages are handed over in order.
  const std::unique_lock delivers(delivers_, std::try_to_lock);
  if (!delivers) return 0;
  std::vector<std::pair<transfer::Operation*, Error>> done;
  std::vector<Message> messages;
  std::vector<transfer::Peer> gone;
  {
    const std::lock_guard lock(network_.mutex_);
    std::shuffle(gets_.begin(), gets_.end(), network_.random_);
    for (std::size_t left = gets_.size(); left-- > 0;) {
      const PendingGet get = gets_.front();
      gets_.pop_front();
      if (network_.is_cut(self_, get.from)) {
        done.emplace_back(get.operation, Error::make(ECONNRESET, "peer %u is gone", get.from));
      } else if (network_.now()) {
        done.emplace_back(get.operation, move(get));
      } else {
        gets_.push_back(get);
      }
    }
    while (!arrived_.empty() && network_.now()) {
      if (!network_.is_cut(self_, arrived_.front().from)) messages.push_back(std::move(arrived_.front()));
      arrived_.pop_front();
    }
    gone = std::exchange(gone_, {});
  }
  for (auto& [operation, error] : done) operation->done(error);
  for (const Message& message : messages)
    handler_->message(message.from, message.payload.data(), message.payload.size());
  for (const transfer::Peer peer : gone) handler_->gone(peer);
  return static_cast<unsigned>(done.size() + messages.size() + gone.size());
}

}  // namespace pinion::test
