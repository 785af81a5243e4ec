// Below the libraries: their registrations and deregistrations of memory, answered from Pinion's registry.
// The library above may register for each transfer; Pinion keeps, predicts and lets go. Its handle has the
// address, length, protection domain and context that were asked for, and the keys of the region under it.
//
// The library itself serves special requests (windows, zero-based, on demand, hugepages, another address for
// peers), requests that Pinion refuses, and callers that rely on the end of a registration, as those without
// a cache of their own may: register_memory() then has no handle, and its caller goes on to libibverbs. Such
// registrations count against the limits too (own_registrations.h).
//
// The engine starts at the first registration, which may be before main(), in any thread. It ends as the
// process exits. In a forked child the parent's handles are inert, and everything passes by. Any thread; not
// from hooks.
#pragma once

#include <infiniband/verbs.h>

#include <optional>

#include "callsite/unwind.h"
#include "intercept/verbs/callers.h"
#include "intercept/verbs/passing.h"

namespace pinion::verbs {

struct Answer {
  ibv_mr* handle = nullptr;  ///< null: nothing has happened
  runlog::PassedFor why = runlog::PassedFor::room;
};

Answer register_memory(const Caller& caller, const Asked& asked, const EntryFrame& entry);

/// The result of ibv_dereg_mr; empty for an unknown handle.
std::optional<int> deregister_memory(Address return_address, ibv_mr* mr);

/// The result of ibv_rereg_mr; empty for an unknown handle. The program's handle stays valid. A refusal
/// changes nothing.
std::optional<int> reregister_memory(ibv_mr* mr, int changes, const Asked& changed, const EntryFrame& entry);

/// Called before the program frees it, and before it closes the device.
void protection_domain_ends(const ibv_pd* pd);
void device_ends(ibv_context* context);

/// Deregisters idle regions, for a registration that passed by and met a limit of the system's, and waits for
/// those that other threads deregister. False: nothing is registered.
bool make_room();

}  // namespace pinion::verbs
