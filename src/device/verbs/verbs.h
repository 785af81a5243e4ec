// RDMA devices by libibverbs, of any provider: registering is ibv_reg_mr in a protection domain. Threads as
// in device.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "device/device.h"

struct ibv_pd;

namespace pinion {

struct VerbsLibrary;

struct VerbsDeviceResult {
  Error error;
  std::unique_ptr<Device> device;
};

enum class Paging {
  pinned,
  /// Registering pins nothing: the device faults memory in during transfers (on-demand paging). Registrations
  /// ahead of the next use are prefetched (ibv_advise_mr).
  on_demand
};

/// Opens a device, with a context and a protection domain of its own. `choice` is NAME or NAME:PORT as
/// ibv_devinfo shows them; empty: the first with an active port. ENOENT: no libibverbs; ENODEV: the device or
/// an active port is missing; ENOTSUP: the device lacks on-demand paging.
VerbsDeviceResult make_verbs_device(const std::string& choice, Paging paging);
/// Opens a device with the given functions, libibverbs' own or a test's.
VerbsDeviceResult make_verbs_device(const VerbsLibrary& verbs, const std::string& choice, Paging paging);

/// Registers in a protection domain of the program's own, which outlives the device, by the copy of
/// libibverbs that opened it. `verbs` is the copy where that cannot be told; null: libibverbs.so.1. In a
/// forked child registering fails (ENODEV). With `extra_access`, its registrations have these flags of
/// ibv_access_flags beside local rights, no others: remote rights are not given because a request might be
/// made for them later, and requests to the device are for local rights alone.
VerbsDeviceResult make_verbs_device(ibv_pd* pd, std::optional<int> extra_access = std::nullopt,
                                    const VerbsLibrary* verbs = nullptr);

}  // namespace pinion
