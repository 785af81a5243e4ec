#include "transfer/endpoint/gather_probe.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/range.h"
#include "transfer/endpoint/list_puts.h"

namespace pinion::transfer {

namespace {

constexpr std::size_t kMostElements = 64;

/// Memory that is leased as long as it lives.
class Leased {
 public:
  Leased(pinion_domain* domain, std::size_t bytes, unsigned access) : bytes_(bytes) {
    void* const map = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) {
      error_ = Error::make(ENOMEM, "no memory for a probe of the network");
      return;
    }
    address_ = static_cast<char*>(map);
    std::memset(address_, 1, bytes);
    keys_.size = sizeof keys_;
    int code = pinion_acquire(domain, address_, bytes, access, &lease_);
    leased_ = code == 0;
    if (code == 0) code = pinion_lease_keys(&lease_, &keys_);
    if (code != 0) error_ = Error::make(code, "%s", pinion_last_error());
  }
  ~Leased() {
    if (leased_) static_cast<void>(pinion_release(&lease_));
    if (address_) ::munmap(address_, bytes_);
  }
  Leased(const Leased&) = delete;
  Leased& operator=(const Leased&) = delete;

  const Error& error() const { return error_; }
  LocalMemory at(std::size_t offset, std::size_t bytes) const {
    return {address_ + offset, bytes, keys_.descriptor};
  }

 private:
  const std::size_t bytes_;
  char* address_ = nullptr;
  bool leased_ = false;
  pinion_lease lease_ = PINION_LEASE_INIT;
  struct pinion_keys keys_ {};
  Error error_;
};

class Probe {
 public:
  Probe(Endpoint& endpoint, Peer peer, const RemoteMemory& target, const Leased& memory)
      : endpoint_(endpoint), peer_(peer), target_(target), memory_(memory) {}

  /// As pinion_gather_probe::transfer.
  static double transfer(void* self, unsigned requests, unsigned elements, std::size_t bytes,
                         std::size_t offset) {
    return static_cast<Probe*>(self)->transfer(requests, elements, bytes, offset);
  }

 private:
  double transfer(unsigned requests, unsigned elements, std::size_t bytes, std::size_t offset) {
    std::array<LocalMemory, kMostElements> list;
    for (unsigned i = 0; i < elements; ++i) list[i] = memory_.at(i * page_size() + offset, bytes);
    const Time begin = monotonic_now();
    ListPuts puts(endpoint_);
    bool refused = false;
    for (unsigned i = 0; i < requests && !refused; ++i)
      refused = static_cast<bool>(puts.post(peer_, {list.data(), elements}, target_));
    const bool arrived = puts.wait() && !refused;
    return arrived ? static_cast<double>(monotonic_now() - begin) : -1;
  }

  Endpoint& endpoint_;
  const Peer peer_;
  const RemoteMemory& target_;
  const Leased& memory_;
};

}  // namespace

Error measure_gather_costs(Endpoint& endpoint, Peer peer, const RemoteMemory& target,
                           pinion_gather_costs& costs) {
  const std::size_t elements = std::min(endpoint.capabilities().max_elements, kMostElements);
  const Leased memory(endpoint.domain(), std::max(elements * page_size(), kProbeBytes + page_size()),
                      PINION_ACCESS_READ);
  if (memory.error()) return memory.error();
  Probe self(endpoint, peer, target, memory);
  pinion_gather_probe probe{};
  probe.size = sizeof probe;
  probe.max_elements = elements;
  probe.max_request_bytes = endpoint.capabilities().max_transfer;
  probe.max_bytes = kProbeBytes;
  probe.context = &self;
  probe.transfer = &Probe::transfer;
  costs = {};
  costs.size = sizeof costs;
  const int code = pinion_gather_measure(&probe, &costs);
  return code ? Error::make(code, "%s", pinion_last_error()) : Error{};
}

}  // namespace pinion::transfer
