// The providers that libfabric offers, and the choice among them: for device `fabric` and for endpoints.
// Ordinary code, any thread; an object belongs to one thread at a time.
#pragma once

#include "device/fabric/fabric_library.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace pinion {

/// A code of libfabric as an error: errno values have the same numbers there; libfabric has more.
/// Allocates nothing.
[[gnu::format(printf, 2, 3)]] Error fabric_failure(int code, const char* format, ...);

/// The part of a provider's name that names the network: tcp of tcp;ofi_rxm.
std::string_view fabric_network(std::string_view provider);

/// Whether registering pins. Where the processor moves the data, it pins nothing.
bool fabric_pins(std::string_view provider);

/// Whether libfabric leaves a provider of this name out on nodes that lack its hardware.
bool fabric_needs_hardware(std::string_view provider);

/// FI_MR_BASIC and FI_MR_SCALABLE: since libfabric 2.0 a use of those macros is a warning of the compiler.
constexpr int kMrBasic = 1 << 0, kMrScalable = 1 << 1;

/// kMrBasic and kMrScalable, from before libfabric 1.5, in today's words.
int fabric_mr_mode(const fi_info& info);

/// fi_getinfo's answer.
class FabricInfos {
 public:
  /// Reliable datagrams with these properties.
  struct Wish {
    std::uint64_t caps = 0;  ///< 0: any
    std::uint64_t mode = 0;  ///< duties of the caller that it fulfils (FI_CONTEXT)
    int mr_mode = FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY |
                  FI_MR_ENDPOINT;  ///< all ways that device fabric understands
    std::uint64_t message_order = 0;
    std::uint64_t completion = 0;  ///< how far an operation is when it completes (FI_DELIVERY_COMPLETE)
    fi_threading threading = FI_THREAD_UNSPEC;
  };

  explicit FabricInfos(const FabricLibrary& fabric) : fabric_(fabric) {}
  ~FabricInfos() { clear(); }
  FabricInfos(const FabricInfos&) = delete;
  FabricInfos& operator=(const FabricInfos&) = delete;

  /// Replaces the answer; `first` is null where no provider serves.
  Error ask(const Wish& wish);
  /// Chooses from the answer by a provider's name as fi_info shows it, or by its network. Without a choice:
  /// the first that pins, else the first. Null and ENODEV: there is none.
  fi_info* choose(const std::string& choice, Error& error) const;

  fi_info* first = nullptr;

 private:
  void clear();
  const FabricLibrary& fabric_;
};

}  // namespace pinion
#endif
