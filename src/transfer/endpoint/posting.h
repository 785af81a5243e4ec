// Offers an endpoint's operations and messages to the provider, and ends those that the provider refuses or
// fails. Owns the slots of operations, the wire buffers of messages, and the keys that the provider maps.
//
// Any thread, but ends_due() and abandon_strays() belong to the one that progresses. An operation that has
// begun ends without further memory.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "transfer/endpoint/fabric_endpoint.h"
#include "transfer/endpoint/fabric_objects.h"
#include "transfer/endpoint/operation_table.h"
#include "transfer/endpoint/peer_table.h"
#include "transfer/endpoint/queue_wait.h"
#include "transfer/endpoint/raw_keys.h"
#include "transfer/endpoint/wire_pool.h"

namespace pinion::transfer {

/// True: by such a code, providers report that the peer, or the way to it, is gone.
bool is_loss(int code);
Error gone_error(Peer peer);

class Posting {
 public:
  /// Elements of the local list of a put or get, at most; a provider may take fewer.
  static constexpr std::size_t kMostElements = 32;

  /// The objects are open before the first operation.
  Posting(FabricObjects& objects, PeerTable& peers, QueueWait& wait, const EndpointCapabilities& capabilities)
      : objects_(objects), peers_(peers), wait_(wait), capabilities_(capabilities) {}
  /// Comes before all else: `domain` registers the wire buffers, unless it is null.
  void use(pinion_domain* domain) { messages_ = std::make_unique<WirePool>(domain); }
  WirePool& messages() { return *messages_; }

  // These end it, in this order; no operation begins any more.

  /// Called before the domain closes: the memory stays.
  void release_memory() {
    if (messages_) messages_->release();
  }
  void unmap_keys() {
    if (objects_.domain != nullptr) raw_keys_.unmap_all(objects_.domain);
  }
  void free_memory() { messages_.reset(); }
  /// Leaves the memory of messages in place, for good.
  void forget() { static_cast<void>(new auto(std::move(messages_))); }

  // Each returns as Endpoint's functions do.

  Error transfer(Peer peer, std::span<const LocalMemory> local, const RemoteMemory& remote,
                 Operation& operation, bool put);
  /// `operation` may be null.
  Error message(Peer from, Peer to, unsigned kind, const void* payload, std::size_t bytes,
                Operation* operation);

  /// Makes buffers if messages lacked some. Registering them may wait for peers: never inside progress, nor
  /// under a lock that handlers take.
  void make_buffers();

  /// The provider has completed the slot.
  void completed(OperationSlot& slot);
  /// The provider has failed it.
  void failed(OperationSlot& slot, int code);

  /// Ends operations whose time to end has come, as many as `most`. Returns how many.
  unsigned end_due(unsigned most);
  /// Ends operations with peers that were cut off, or were gone when the operation was posted. A peer that is
  /// cut off may still answer gets, so those wait until it is gone. Returns how many.
  unsigned end_strays();
  /// Ends all operations with a peer that is gone.
  void end_all(Peer peer);
  /// Ends all operations by that code of libfabric, or as the endpoint closes. Returns how many.
  unsigned end_all(const Error& error);
  /// The peer is cut off: end_strays() looks for its operations.
  void note_strays() { strays_.store(true); }
  Error failure(int code) const;
  /// Operations under way.
  std::size_t live() const { return operations_.live(); }

 private:
  WireBuffer* wire_buffer();
  Error posted(OperationSlot& slot, Peer peer, long result);
  void give_back(OperationSlot& slot);
  void conclude(OperationSlot& slot, int code);
  void end_later(OperationSlot& slot, int code, Time due);

  FabricObjects& objects_;
  PeerTable& peers_;
  QueueWait& wait_;
  const EndpointCapabilities& capabilities_;
  std::unique_ptr<WirePool> messages_;
  OperationTable operations_;
  RawKeys raw_keys_;
  std::atomic<bool> lacks_buffers_{false};
  std::atomic<bool> strays_{false};  ///< operations are under way with peers that are cut off or gone
};

}  // namespace pinion::transfer
#endif
