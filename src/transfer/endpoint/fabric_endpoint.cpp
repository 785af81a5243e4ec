#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/held_signals.h"
#include "monitor/own_threads.h"
#include "pinion/pinion.h"
#include "transfer/endpoint/fabric_endpoint_inside.h"

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
    : silence_(options.silence),
      owner_(::getpid()),
      meeting_(options.job, options.connect_within),
      objects_(library),
      posting_(objects_, peers_, wait_, capabilities_) {}

OpenEndpoint::~OpenEndpoint() {
  // All of it belongs to the parent of a forked child; with leases out, the domain must stay as it is.
  if (::getpid() == owner_ && !close()) return;
  posting_.forget();
  objects_.forget();
}

Error OpenEndpoint::open(const std::string& provider) {
  const HeldSignals held;  // for threads that providers start
  if (Error error = objects_.open(provider, OperationTable::kMost + kReceives)) return error;
  Card& own = meeting_.own();
  own.provider = objects_.provider();
  const fi_info& info = *objects_.info;
  if (objects_.has_mode(FI_MR_RAW) && info.domain_attr->mr_key_size > RawKey::kMost)
    return Error::make(ENOTSUP,
                       "libfabric's provider %s has keys of %zu bytes; up to %zu can be sent to peers",
                       own.provider.c_str(), info.domain_attr->mr_key_size, RawKey::kMost);
  capabilities_.provider = own.provider.c_str();
  capabilities_.max_message = std::min(WirePool::kBytes, info.ep_attr->max_msg_size) - kMessageHeader;
  capabilities_.max_transfer = info.ep_attr->max_msg_size;
  capabilities_.max_elements = std::clamp<std::size_t>(info.tx_attr->iov_limit, 1, Posting::kMostElements);
  capabilities_.automatic_progress = info.domain_attr->data_progress == FI_PROGRESS_AUTO;
  wait_.watch(objects_.fabric, objects_.queue, objects_.descriptor);
  if (const int code = pinion_domain_open_fabric(objects_.domain, objects_.info, objects_.endpoint, &domain_))
    return Error::make(code, "%s", pinion_last_error());
  posting_.use(objects_.has_mode(FI_MR_LOCAL) ? domain_ : nullptr);
  if (Error error = objects_.name(own.address)) return error;
  WirePool& messages = posting_.messages();
  while (messages.made() < kReceives)
    if (Error error = messages.grow()) return error;
  receives_.fill(messages);
  // For sends; more are made by progress() where these are too few.
  if (Error error = messages.grow()) return error;
  return receives_.post(objects_);
}

Error OpenEndpoint::meet(std::uint64_t word, std::vector<std::uint64_t>& words) {
  return meeting_.meet(word, words);
}

Error OpenEndpoint::add_peer(Peer peer) {
  PeerTable::Entry& entry = peers_.at(peer);
  const Card& own = meeting_.own();
  const auto network = fabric_network(own.provider);
  const bool shm = network == "shm" || network == "sm2";
  if (shm) entry.shm.remember(entry.card.process, entry.card.address);
  if (!entry.same_node && shm)
    return Error::make(EHOSTUNREACH, "libfabric's provider %s ends at this node; process %u is on another",
                       own.provider.c_str(), peer);
  if (!entry.same_node && (is_loopback(own.address) || is_loopback(entry.card.address)))
    return Error::make(EADDRNOTAVAIL,
                       "process %u is on another node, but libfabric's provider %s uses the loopback "
                       "interface: no other one is up",
                       peer, own.provider.c_str());
  return objects_.insert(entry.card.address, entry.address);
}

Error OpenEndpoint::connect() {
  if (connected_.load()) return Error::make(EISCONN, "the endpoint is connected already");
  std::vector<std::uint64_t> unused;
  if (Error error = meeting_.met() ? Error{} : meet(0, unused)) return error;
  if (Error error = meeting_.check_providers()) return error;
  peers_.fill(meeting_.take_cards(), meeting_.own());
  bool helps = !capabilities_.automatic_progress;
  for (Peer peer = 0; peer < peers_.size(); ++peer) {
    if (Error error = add_peer(peer)) return error;
    helps |= !peers_.at(peer).same_node;
  }
  connected_.store(true);
  if (helps) thread_ = start_own_thread("pinion-transfer", [this] { run(); });
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

/// Tells peers that share no directory with this process.
void OpenEndpoint::say_goodbye() {
  const Time end = monotonic_now() + kSecond;
  for (Peer peer = 0; peer < peers_.size(); ++peer) {
    if (peer == self() || !peers_.at(peer).touched.load()) continue;
    while (send(peer, kLeave, nullptr, 0, nullptr).code == EAGAIN && monotonic_now() < end)
      if (advance() == 0) wait_.wait(kMillisecond);
  }
}

/// Operations under way get a second to end; then they end by ECANCELED.
void OpenEndpoint::end_operations() {
  const Time end = monotonic_now() + kSecond;
  while (posting_.live() > 0 && monotonic_now() < end)
    if (advance() == 0) wait_.wait(10 * kMillisecond);
  posting_.end_all(Error::make(ECANCELED, "the endpoint closes"));
}

Error OpenEndpoint::close() {
  if (closed_) return {};
  if (connected_.load()) {
    stop_thread();
    if (meeting_.needs_goodbye()) say_goodbye();
    end_operations();
    closing_.store(true);
    connected_.store(false);
  }
  meeting_.leave([this](Peer peer) { return peer < peers_.size() && !peers_.is_here(peer); });
  const HeldSignals held;
  posting_.release_memory();
  if (domain_ != nullptr) {
    if (const int code = pinion_domain_close(domain_))
      return Error::make(code, "the endpoint's domain: %s", pinion_last_error());
    domain_ = nullptr;
  }
  posting_.unmap_keys();
  objects_.close();
  posting_.free_memory();
  closed_ = true;
  return {};
}

FabricEndpointResult open_fabric_endpoint(const FabricLibrary& library,
                                          const FabricEndpointOptions& options) {
  auto endpoint = std::make_unique<OpenEndpoint>(library, options);
  if (Error error = endpoint->open(options.provider)) return {error, nullptr};
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
