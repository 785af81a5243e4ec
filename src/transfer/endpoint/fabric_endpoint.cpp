#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/held_signals.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/fabric_endpoint_inside.h"
#include "transfer/bootstrap/launcher_exchange.h"

namespace pinion::transfer {

namespace {

constexpr std::size_t kReceives = 2 * WirePool::kBlock;

/// A socket address that only its own node reaches.
bool is_loopback(const std::vector<unsigned char>& address) {
  sockaddr_storage socket{};
  if (address.size() > sizeof socket) return false;
  std::memcpy(&socket, address.data(), address.size());
  const auto* const v4 = reinterpret_cast<const sockaddr_in*>(&socket);
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&socket);
  if (address.size() == sizeof *v4 && socket.ss_family == AF_INET)
    return ntohl(v4->sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
  return address.size() == sizeof *v6 && socket.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

}  // namespace

OpenEndpoint::OpenEndpoint(const FabricLibrary& library, const FabricEndpointOptions& options)
    : options_(options), owner_(::getpid()), own_(own_card(options.job)), objects_(library) {}

OpenEndpoint::~OpenEndpoint() {
  // All of it belongs to the parent of a forked child; with leases out, the domain must stay as it is.
  if (::getpid() == owner_ && !close()) return;
  static_cast<void>(new auto(std::move(messages_)));
  objects_.forget();
}

Error OpenEndpoint::open() {
  const HeldSignals held;  // for threads that providers start
  if (Error error = objects_.open(options_.provider, OperationTable::kMost + kReceives)) return error;
  provider_ = objects_.provider();
  const fi_info& info = *objects_.info;
  if (objects_.has_mode(FI_MR_RAW) && info.domain_attr->mr_key_size > RawKey::kMost)
    return Error::make(ENOTSUP,
                       "libfabric's provider %s has keys of %zu bytes; up to %zu can be sent to peers",
                       provider_.c_str(), info.domain_attr->mr_key_size, RawKey::kMost);
  capabilities_.provider = provider_.c_str();
  capabilities_.max_message = std::min(WirePool::kBytes, info.ep_attr->max_msg_size) - kMessageHeader;
  capabilities_.max_transfer = info.ep_attr->max_msg_size;
  capabilities_.max_elements = std::clamp<std::size_t>(info.tx_attr->iov_limit, 1, kMostElements);
  capabilities_.automatic_progress = info.domain_attr->data_progress == FI_PROGRESS_AUTO;
  wait_.watch(objects_.fabric, objects_.queue, objects_.descriptor);
  if (const int code = pinion_domain_open_fabric(objects_.domain, objects_.info, objects_.endpoint, &domain_))
    return Error::make(code, "%s", pinion_last_error());
  messages_ = std::make_unique<WirePool>(objects_.has_mode(FI_MR_LOCAL) ? domain_ : nullptr);
  own_.provider = provider_;
  if (Error error = objects_.name(own_.address)) return error;
  while (messages_->made() < kReceives)
    if (Error error = messages_->grow()) return error;
  while (WireBuffer* const buffer = messages_->take()) {
    receives_.emplace_back().buffer = buffer;
    unposted_.push_back(&receives_.back());
  }
  return post_receives();
}

Error OpenEndpoint::meet(std::uint64_t word, std::vector<std::uint64_t>& words) {
  const Job& job = options_.job;
  if (job.rank >= job.peers)
    return Error::make(EINVAL, "process %u of %u: there is no such rank", job.rank, job.peers);
  own_.word = word;
  Error error;
  if (job.directory.empty()) {
    error = exchange_by_launcher(own_, options_.connect_within, cards_);
  } else if (!(error = directory_.open(job.directory)) && !(error = directory_.publish(own_))) {
    error = directory_.collect(job.peers, options_.connect_within, cards_);
  }
  if (error) return error;
  for (const Card& card : cards_) words.push_back(card.word);
  return {};
}

Error OpenEndpoint::add_peer(Peer peer) {
  PeerTable::Entry& entry = peers_.at(peer);
  const auto network = fabric_network(provider_);
  const bool shm = network == "shm" || network == "sm2";
  if (shm) entry.shm.remember(entry.card.process, entry.card.address);
  if (!entry.same_node && shm)
    return Error::make(EHOSTUNREACH, "libfabric's provider %s ends at this node; process %u is on another",
                       provider_.c_str(), peer);
  if (!entry.same_node && (is_loopback(own_.address) || is_loopback(entry.card.address)))
    return Error::make(EADDRNOTAVAIL,
                       "process %u is on another node, but libfabric's provider %s uses the loopback "
                       "interface: no other one is up",
                       peer, provider_.c_str());
  return objects_.insert(entry.card.address, entry.address);
}

Error OpenEndpoint::connect() {
  if (connected_.load()) return Error::make(EISCONN, "the endpoint is connected already");
  std::vector<std::uint64_t> unused;
  if (Error error = cards_.empty() ? meet(0, unused) : Error{}) return error;
  for (const Card& card : cards_)
    if (card.provider != own_.provider)
      return Error::make(EINVAL, "process %u uses libfabric's provider %s, this one %s: name one for all",
                         card.rank, card.provider.c_str(), provider_.c_str());
  peers_.fill(std::exchange(cards_, {}), own_);
  bool helps = !capabilities_.automatic_progress;
  for (Peer peer = 0; peer < peers_.size(); ++peer) {
    if (Error error = add_peer(peer)) return error;
    helps |= !peers_.at(peer).same_node;
  }
  connected_.store(true);
  if (helps) {
    const HeldSignals held;  // the thread runs no handlers of the program's
    thread_ = std::thread([this] { run(); });
  }
  return {};
}

void OpenEndpoint::handle(unsigned kind, MessageHandler& handler) {
  if (kind < kKinds) handlers_[kind] = &handler;
}

void OpenEndpoint::stop_thread() {
  stop_.store(1);
  futex_wake(stop_, 1);
  wait_.advanced();
  if (thread_.joinable()) thread_.join();
}

/// For peers that share no directory with this process.
void OpenEndpoint::say_goodbye() {
  const Time end = monotonic_now() + kSecond;
  for (Peer peer = 0; peer < peers_.size(); ++peer) {
    if (peer == own_.rank || !peers_.at(peer).touched.load()) continue;
    while (send(peer, kLeave, nullptr, 0, nullptr).code == EAGAIN && monotonic_now() < end)
      if (advance() == 0) wait_.wait(kMillisecond);
  }
}

/// Operations under way get a second to end; then they end by ECANCELED.
void OpenEndpoint::end_operations() {
  const Time end = monotonic_now() + kSecond;
  while (operations_.live() > 0 && monotonic_now() < end)
    if (advance() == 0) wait_.wait(10 * kMillisecond);
  operations_.abandon_all(
      [](Operation& operation) { operation.done(Error::make(ECANCELED, "the endpoint closes")); });
}

Error OpenEndpoint::close() {
  if (closed_) return {};
  if (connected_.load()) {
    stop_thread();
    if (options_.job.directory.empty()) say_goodbye();
    end_operations();
    closing_.store(true);
    connected_.store(false);
  }
  directory_.leave(own_, [this](Peer peer) { return peer < peers_.size() && !peers_.is_here(peer); });
  const HeldSignals held;
  if (messages_) messages_->release();
  if (domain_ != nullptr) {
    if (const int code = pinion_domain_close(domain_))
      return Error::make(code, "the endpoint's domain: %s", pinion_last_error());
    domain_ = nullptr;
  }
  if (objects_.domain != nullptr) raw_keys_.unmap_all(objects_.domain);
  objects_.close();
  messages_.reset();
  closed_ = true;
  return {};
}

FabricEndpointResult open_fabric_endpoint(const FabricLibrary& library,
                                          const FabricEndpointOptions& options) {
  auto endpoint = std::make_unique<OpenEndpoint>(library, options);
  if (Error error = endpoint->open()) return {error, nullptr};
  return {{}, std::move(endpoint)};
}

FabricEndpointResult open_fabric_endpoint(const FabricEndpointOptions& options) {
  Error error;
  const FabricLibrary* library = nullptr;
  {
    const HeldSignals held;
    library = fabric_library(error);
  }
  if (library == nullptr) return {error, nullptr};
  return open_fabric_endpoint(*library, options);
}

}  // namespace pinion::transfer

#else

namespace pinion::transfer {

FabricEndpointResult open_fabric_endpoint(const FabricEndpointOptions&) {
  return {Error::make(ENOSYS, "this build of Pinion has no libfabric"), nullptr};
}

}  // namespace pinion::transfer
#endif
