// libibverbs, loaded when first asked for: everything else runs on machines that lack it. The functions are
// the library's own, also where a preload stands in front of them. A process may have several copies, as
// Python's wheels bring theirs. Their structures differ inside, so what one copy has opened is its own. Each
// is constant once found; any thread, outside of hooks.
#pragma once

#ifdef PINION_HAS_VERBS
#include <infiniband/verbs.h>

#include "base/error.h"

namespace pinion {

/// The functions that make and end registrations, which callers above Pinion call, too. Null: missing; the
/// two with another address for transfers than the memory's (iova) are since rdma-core 28.
struct RegistrationFunctions {
  decltype(&ibv_reg_mr) reg_mr = nullptr;
  decltype(&ibv_reg_mr_iova) reg_mr_iova = nullptr;
  decltype(&ibv_reg_mr_iova2) reg_mr_iova2 = nullptr;
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_rereg_mr) rereg_mr = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;

  bool operator==(const RegistrationFunctions&) const = default;
};

/// Calls visit(function, name, is_needed) for each; a device needs some of them.
template <class Visit>
void for_each_function(RegistrationFunctions& functions, Visit visit) {
  visit(functions.reg_mr, "ibv_reg_mr", true);
  visit(functions.reg_mr_iova, "ibv_reg_mr_iova", false);
  visit(functions.reg_mr_iova2, "ibv_reg_mr_iova2", false);
  visit(functions.dereg_mr, "ibv_dereg_mr", true);
  visit(functions.rereg_mr, "ibv_rereg_mr", false);
  visit(functions.dealloc_pd, "ibv_dealloc_pd", true);
  visit(functions.close_device, "ibv_close_device", true);
}

struct VerbsLibrary : RegistrationFunctions {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_get_device_name) get_device_name = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  decltype(&ibv_query_port) query_port = nullptr;  ///< fills in the first part of a port's attributes
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_is_fork_initialized) is_fork_initialized = nullptr;  ///< null before rdma-core 35

  bool operator==(const VerbsLibrary&) const = default;
};

/// Null and an error where the library is missing or too old.
const VerbsLibrary* verbs_library(Error& error);

/// Returns the library only if the process has loaded it already.
const VerbsLibrary* loaded_verbs_library(Error& error);

/// A function that a provider has put into the context: its address tells the provider. Null: there is none.
const void* code_of_provider(const ibv_context& context);
/// The copy of libibverbs that the object with this code is, or whose functions it is bound to, as a provider
/// is. Null: neither, or there is no memory for it.
const VerbsLibrary* verbs_library_behind(const void* code);

}  // namespace pinion
#endif
