#include "device/fabric/fabric_infos.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace pinion {

Error fabric_failure(int code, const char* format, ...) {
  char what[sizeof Error::message];
  va_list args;
  va_start(args, format);
  std::vsnprintf(what, sizeof what, format, args);
  va_end(args);
  code = std::abs(code);
  if (code < FI_ERRNO_OFFSET) return Error::make(code, "%s: %s", what, std::strerror(code));
  return Error::make(EIO, "%s: error %d of libfabric (rdma/fi_errno.h)", what, code);
}

std::string_view fabric_network(std::string_view provider) { return provider.substr(0, provider.find(';')); }

bool fabric_pins(std::string_view provider) {
  // ofi_rxd copies the data into packets of its own, over any network.
  if (provider.ends_with(";ofi_rxd")) return false;
  constexpr std::string_view kProcessors[] = {"tcp", "sockets", "udp", "net", "shm", "sm2"};
  return std::find(std::begin(kProcessors), std::end(kProcessors), fabric_network(provider)) ==
         std::end(kProcessors);
}

bool fabric_needs_hardware(std::string_view provider) {
  constexpr std::string_view kHardware[] = {"bgq", "cxi",  "efa",  "gni", "lpp",   "mlx",  "opx",
                                            "psm", "psm2", "psm3", "ucx", "usnic", "verbs"};
  return std::find(std::begin(kHardware), std::end(kHardware), fabric_network(provider)) !=
         std::end(kHardware);
}

int fabric_mr_mode(const fi_info& info) {
  const int mode = info.domain_attr->mr_mode;
  if (mode == kMrBasic) return FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  return mode == kMrScalable ? 0 : mode;
}

void FabricInfos::clear() {
  if (first != nullptr) fabric_.freeinfo(first);
  first = nullptr;
}

Error FabricInfos::ask(const Wish& wish) {
  clear();
  fi_info* const hints = fabric_.dupinfo(nullptr);
  if (hints == nullptr) return Error::make(ENOMEM, "libfabric has no memory for its hints");
  hints->caps = wish.caps;
  hints->mode = wish.mode;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = wish.mr_mode;
  hints->domain_attr->threading = wish.threading;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = wish.message_order;
  hints->tx_attr->op_flags = wish.completion;
  const int code = fabric_.getinfo(kFabricVersion, nullptr, nullptr, 0, hints, &first);
  fabric_.freeinfo(hints);
  if (code == -FI_ENODATA) return {};
  return code == 0 ? Error{} : fabric_failure(code, "libfabric lists no providers");
}

fi_info* FabricInfos::choose(const std::string& choice, Error& error) const {
  fi_info* chosen = nullptr;
  std::string names;
  for (fi_info* info = first; info != nullptr; info = info->next) {
    const std::string name = info->fabric_attr->prov_name;
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
    if (!choice.empty() && choice != name && choice != fabric_network(name)) continue;
    if (chosen == nullptr ||
        (choice.empty() && fabric_pins(name) && !fabric_pins(chosen->fabric_attr->prov_name)))
      chosen = info;
  }
  if (chosen == nullptr)
    error = Error::make(ENODEV, "libfabric has no provider%s that can put and get here; there are: %s",
                        choice.empty() ? "" : (" '" + choice + "'").c_str(),
                        names.empty() ? "none" : names.c_str());
  return chosen;
}

}  // namespace pinion
#endif
