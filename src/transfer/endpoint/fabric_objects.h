// The objects of an endpoint at libfabric: fabric, domain, addresses, one completion queue, one reliable
// datagram endpoint. Opened and closed by one thread; it closes its own.
#pragma once

#include "device/fabric/fabric_infos.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_eq.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace pinion::transfer {

class FabricObjects {
 public:
  explicit FabricObjects(const FabricLibrary& library) : infos_(library), library_(library) {}
  ~FabricObjects() { close(); }
  FabricObjects(const FabricObjects&) = delete;
  FabricObjects& operator=(const FabricObjects&) = delete;

  /// `choice`: as make_fabric_device()'s. `queue_entries`: the most completions at a time.
  Error open(const std::string& choice, std::size_t queue_entries);
  void close();
  /// Leaves everything open, for good: it is a forked child's parent's, or still in use.
  void forget();

  /// The own address, for peers.
  Error name(std::vector<unsigned char>& address) const;
  Error insert(const std::vector<unsigned char>& address, fi_addr_t& peer);
  /// Reads completions, as many as there are, as fi_cq_read() does; `sources` names the peers whose messages
  /// have arrived, FI_ADDR_UNSPEC where the provider does not know.
  ssize_t read(std::span<fi_cq_msg_entry> entries, std::span<fi_addr_t> sources) const;
  std::string provider() const { return info->fabric_attr->prov_name; }
  bool has_mode(int mode) const { return (fabric_mr_mode(*info) & mode) != 0; }

  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fid_cq* queue = nullptr;
  fid_ep* endpoint = nullptr;
  int descriptor = -1;         ///< the queue's, to poll; negative: it has none
  std::uint64_t delivery = 0;  ///< flag of puts: the strongest completion that the provider has

 private:
  Error choose(const std::string& choice);
  int open_queue(std::size_t entries);
  void discard() const;
  void close_all();

  FabricInfos infos_;
  const FabricLibrary& library_;
};

}  // namespace pinion::transfer
#endif
