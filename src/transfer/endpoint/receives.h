// The buffers that an endpoint offers for messages of its peers. Owned by the thread that progresses, and by
// the one that opens before.
#pragma once

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <deque>
#include <vector>

#include "transfer/endpoint/fabric_objects.h"
#include "transfer/endpoint/operation_table.h"
#include "transfer/endpoint/wire_pool.h"

namespace pinion::transfer {

class Receives {
 public:
  struct Receive : Context {
    Receive() { kind = Kind::receive; }
    WireBuffer* buffer = nullptr;
  };

  /// Takes all buffers that the pool has made.
  void fill(WirePool& pool) {
    while (WireBuffer* const buffer = pool.take()) {
      all_.emplace_back().buffer = buffer;
      unposted_.push_back(&all_.back());
    }
  }
  /// The provider has let go of it.
  void returned(Receive& receive) { unposted_.push_back(&receive); }
  /// Offers those that are here, as many as the provider takes.
  Error post(const FabricObjects& objects) {
    while (!unposted_.empty()) {
      Receive* const receive = unposted_.back();
      const ssize_t code = fi_recv(objects.endpoint, receive->buffer->bytes, WirePool::kBytes,
                                   receive->buffer->descriptor, FI_ADDR_UNSPEC, receive);
      if (code == -FI_EAGAIN) return {};
      if (code != 0)
        return fabric_failure(static_cast<int>(code), "libfabric's provider %s takes no receive",
                              objects.provider().c_str());
      unposted_.pop_back();
    }
    return {};
  }

 private:
  std::deque<Receive> all_;
  std::vector<Receive*> unposted_;  ///< has room for all
};

}  // namespace pinion::transfer
#endif
