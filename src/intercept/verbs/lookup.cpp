// dlsym() and dlvsym() of the functions that entries.cpp stands before. libibverbs' own ibv_reg_mr calls
// ibv_reg_mr_iova2 by its public name, which is the preload's: a program that looks its functions up would
// take Pinion's handle to the library's own ibv_dereg_mr. So a lookup that ends at one of these functions of
// the library gives the preload's.
//
// Any thread; not from hooks.
#include "intercept/lookup.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "base/own_loading.h"
#include "intercept/definitions.h"
#include "intercept/exports.h"

namespace pinion::verbs {

namespace {

/// The preload, as a handle of dlopen().
void* preload() {
  static constinit std::atomic<void*> known{nullptr};
  void* handle = known.load(std::memory_order_relaxed);
  Dl_info here{};
  if (handle == nullptr && ::dladdr(reinterpret_cast<const void*>(&preload), &here) != 0)
    known.store(handle = load_library(here.dli_fname, RTLD_LAZY | RTLD_NOLOAD), std::memory_order_relaxed);
  return handle;
}

/// Whether the library has the function in a version that the preload has too (preload.map). A function of
/// the same name in another library, which calls these, is unversioned.
bool has_our_version(void* library, const char* name, const void* function) {
  for (const char* const version : {"IBVERBS_1.1", "IBVERBS_1.7", "IBVERBS_1.8"})
    if (look_up(library, name, version) == function) return true;
  return false;
}

}  // namespace

Answer answer(const Question& question) {
  const auto [library, name, version, caller] = question;
  if (std::strncmp(name, "ibv_", 4) != 0 || preload() == nullptr) return kAsWithoutUs;
  void* const ours = look_up(preload(), name, version);
  if (ours == nullptr) return kAsWithoutUs;
  // While libibverbs is not loaded, its functions are missing.
  if (first_definition(Where::anywhere, name) == nullptr) return {look_up(RTLD_NEXT, name, version), 1};

  // A library that wraps these functions, and which the preload calls, gets the plain answer: the preload's
  // would make a loop.
  void* const callers = definition_beside(caller, name);
  if (callers != nullptr && callers == find_next_definition(name)) return kAsWithoutUs;
  if (library == RTLD_DEFAULT) return kAsWithoutUs;  // meets the preload first
  if (library == RTLD_NEXT) return callers != nullptr ? kAsWithoutUs : Answer{ours, 1};
  void* const found = look_up(library, name, version);
  if (found == nullptr || (version == nullptr && !has_our_version(library, name, found))) return kAsWithoutUs;
  return {ours, 1};
}

}  // namespace pinion::verbs
