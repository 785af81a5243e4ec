#include "transfer/endpoint/fabric_objects.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/clock.h"

namespace pinion::transfer {

namespace {

/// Peers' last messages and credits come within it, but for peers that get no processor.
constexpr Duration kSettle = 30 * kMillisecond;

template <class Fid>
void close_one(Fid*& object) {
  if (object != nullptr) fi_close(&object->fid);
  object = nullptr;
}

}  // namespace

/// Prefers the strongest completion, and then messages whose sources the provider names.
Error FabricObjects::choose(const std::string& choice) {
  FabricInfos::Wish wish;
  wish.mode = FI_CONTEXT | FI_CONTEXT2;
  wish.message_order = FI_ORDER_SAS;
  wish.threading = FI_THREAD_SAFE;
  for (const std::uint64_t completion : {std::uint64_t{FI_DELIVERY_COMPLETE}, std::uint64_t{0}}) {
    delivery = completion != 0 ? completion : FI_TRANSMIT_COMPLETE;
    for (const std::uint64_t source : {std::uint64_t{FI_SOURCE}, std::uint64_t{0}}) {
      wish.caps = FI_MSG | FI_RMA | source;
      wish.completion = completion;
      Error error = infos_.ask(wish);
      if (!error) info = infos_.choose(choice, error);
      const bool is_last = completion == 0 && source == 0;
      if (info != nullptr || is_last || (error && error.code != ENODEV)) return error;
    }
  }
  return {};
}

int FabricObjects::open_queue(std::size_t entries) {
  fi_cq_attr wish{};
  wish.size = entries;
  wish.format = FI_CQ_FORMAT_MSG;
  wish.wait_obj = FI_WAIT_FD;
  if (fi_cq_open(domain, &wish, &queue, nullptr) == 0) {
    if (fi_control(&queue->fid, FI_GETWAIT, &descriptor) == 0) return 0;
    close_one(queue);
  }
  descriptor = -1;
  wish.wait_obj = FI_WAIT_NONE;
  return fi_cq_open(domain, &wish, &queue, nullptr);
}

Error FabricObjects::open(const std::string& choice, std::size_t queue_entries) {
  if (Error error = choose(choice)) return error;
  fi_av_attr table{};
  table.type = FI_AV_TABLE;
  // Each operation names its own completion.
  info->tx_attr->op_flags = info->rx_attr->op_flags = 0;
  int code = library_.fabric(info->fabric_attr, &fabric, nullptr);
  if (code == 0) code = fi_domain(fabric, info, &domain, nullptr);
  if (code == 0) code = fi_av_open(domain, &table, &addresses, nullptr);
  if (code == 0) code = open_queue(queue_entries);
  if (code == 0) code = fi_endpoint(domain, info, &endpoint, nullptr);
  if (code == 0) code = fi_ep_bind(endpoint, &addresses->fid, 0);
  if (code == 0) code = fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_RECV);
  if (code == 0) code = fi_enable(endpoint);
  if (code == 0) return {};
  Error error = fabric_failure(code, "libfabric's provider %s cannot be opened", provider().c_str());
  close_all();
  return error;
}

/// Takes what arrives off the queue, for a while where an RDMA device moves it. The ofi_rxm of libfabric 1.17
/// handles messages that it finds while it closes, its own credits too, and posts their buffers on
/// connections that it has freed. An endpoint that was never enabled has nothing that could read.
void FabricObjects::discard() const {
  if (endpoint == nullptr) return;
  fi_cq_msg_entry entry{};
  fi_cq_err_entry failure{};
  const Time end = monotonic_now() + (fabric_pins(provider()) ? kSettle : 0);
  for (;;) {
    ssize_t code = fi_cq_read(queue, &entry, 1);
    if (code == -FI_EAVAIL) code = fi_cq_readerr(queue, &failure, 0);
    if (code > 0) continue;
    if (monotonic_now() >= end) return;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kMillisecond));
  }
}

void FabricObjects::close() {
  discard();
  close_all();
}

void FabricObjects::close_all() {
  close_one(endpoint);
  close_one(queue);
  close_one(addresses);
  close_one(domain);
  close_one(fabric);
  descriptor = -1;
}

void FabricObjects::forget() {
  endpoint = nullptr;
  queue = nullptr;
  addresses = nullptr;
  domain = nullptr;
  fabric = nullptr;
}

ssize_t FabricObjects::read(std::span<fi_cq_msg_entry> entries, std::span<fi_addr_t> sources) const {
  std::fill(sources.begin(), sources.end(), FI_ADDR_UNSPEC);
  return (info->caps & FI_SOURCE) != 0 ? fi_cq_readfrom(queue, entries.data(), entries.size(), sources.data())
                                       : fi_cq_read(queue, entries.data(), entries.size());
}

Error FabricObjects::name(std::vector<unsigned char>& address) const {
  address.resize(512);
  std::size_t length = address.size();
  const int code = fi_getname(&endpoint->fid, address.data(), &length);
  if (code != 0) return fabric_failure(code, "libfabric's provider %s gives no address", provider().c_str());
  address.resize(length);
  return {};
}

Error FabricObjects::insert(const std::vector<unsigned char>& address, fi_addr_t& peer) {
  // Providers take its length from its content; zeros behind it end a text.
  std::vector<unsigned char> padded(address);
  padded.resize(address.size() + 512);
  const int inserted = fi_av_insert(addresses, padded.data(), 1, &peer, 0, nullptr);
  if (inserted == 1) return {};
  return fabric_failure(inserted < 0 ? inserted : EHOSTUNREACH,
                        "libfabric's provider %s refuses a peer's address", provider().c_str());
}

}  // namespace pinion::transfer
#endif
