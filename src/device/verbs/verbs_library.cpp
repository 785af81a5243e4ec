#include "device/verbs/verbs_library.h"

#include "device/verbs/own_verbs_call.h"

namespace pinion {

const void*& OwnVerbsCall::note() {
  static constinit thread_local const void* outermost = nullptr;
  return outermost;
}

bool OwnVerbsCall::now() { return OpenFrame::is_inside(note()); }

}  // namespace pinion

#ifdef PINION_HAS_VERBS
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <new>

#include "base/loaded_objects.h"
#include "base/own_loading.h"
#include "device/optional_library.h"

namespace pinion {

namespace {

constexpr const char* kLibrary = "libibverbs.so.1";

template <class Find>
void for_each_function(VerbsLibrary& verbs, Find find) {
  for_each_function(static_cast<RegistrationFunctions&>(verbs), find);
  find(verbs.get_device_list, "ibv_get_device_list", true);
  find(verbs.free_device_list, "ibv_free_device_list", true);
  find(verbs.get_device_name, "ibv_get_device_name", true);
  find(verbs.open_device, "ibv_open_device", true);
  find(verbs.query_device, "ibv_query_device", true);
  find(verbs.query_port, "ibv_query_port", true);
  find(verbs.alloc_pd, "ibv_alloc_pd", true);
  find(verbs.is_fork_initialized, "ibv_is_fork_initialized", false);
}

OptionalLibrary<VerbsLibrary> load() {
  OptionalLibrary<VerbsLibrary> loaded;
  void* const library = load_library(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    loaded.error = Error::make(
        ENOENT, "libibverbs cannot be loaded (%s); Debian: libibverbs1 ibverbs-providers", ::dlerror());
    return loaded;
  }
  SymbolFinder symbols(library);
  for_each_function(loaded.functions, [&](auto& function, const char* name, bool is_needed) {
    is_needed ? symbols.find(function, name) : symbols.find_if_there(function, name);
  });
  if (!symbols.missing().empty())
    loaded.error = Error::make(ENOSYS, "libibverbs has no %s", symbols.missing().c_str());
  return loaded;
}

// ---- copies ----

/// Where the object is one, its functions. A preload or a tracer defines a part of them.
bool read_copy(const ElfObject& tables, VerbsLibrary& copy) {
  bool is_whole = true;
  for_each_function(copy, [&]<class F>(F& function, const char* name, bool is_needed) {
    function = is_whole ? reinterpret_cast<F>(tables.function(SymbolName(name))) : nullptr;
    if (is_needed && function == nullptr) is_whole = false;
  });
  return is_whole;
}

/// The copy that holds this address of code or data.
bool read_copy_around(const void* address, VerbsLibrary& copy) {
  bool is_one = false;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.holds(address)) return false;
    is_one = read_copy(object.tables(), copy);
    return true;
  });
  return is_one;
}

/// The copy whose functions the object calls. Names that no preload stands before decide: their slots lead
/// there, once they are bound.
bool read_copy_behind(const ElfObject& tables, VerbsLibrary& copy) {
  constexpr int kMostTargets = 64;
  std::array<ElfW(Addr), kMostTargets> targets;
  int count = 0;
  tables.for_each_slot([&](const ElfW(Addr) * slot, ElfW(Addr), const ElfW(Sym) & symbol) {
    const char* const name = tables.name_of(symbol);
    const bool is_theirs = name[0] == 'i' && name[1] == 'b' && name[2] == 'v' && name[3] == '_';
    const bool is_for_providers = name[0] == 'v' && name[1] == 'e' && name[2] == 'r' && name[3] == 'b' &&
                                  name[4] == 's' && name[5] == '_';
    if ((is_theirs || is_for_providers) && *slot != 0 && count < kMostTargets)
      targets[static_cast<std::size_t>(count++)] = *slot;
  });
  for (int i = 0; i < count; ++i)
    if (read_copy_around(reinterpret_cast<const void*>(targets[static_cast<std::size_t>(i)]), copy))
      return true;
  return false;
}

/// Copies that were found. They are few, and stay.
struct KnownCopy {
  VerbsLibrary functions;
  const KnownCopy* next;
};
constinit std::atomic<const KnownCopy*> g_copies{nullptr};

const VerbsLibrary* known(const VerbsLibrary& copy) {
  for (const KnownCopy* one = g_copies.load(std::memory_order_acquire); one != nullptr; one = one->next)
    if (one->functions == copy) return &one->functions;
  // A second one for the same copy does no harm.
  auto* const fresh = new (std::nothrow) KnownCopy{copy, g_copies.load(std::memory_order_acquire)};
  if (fresh == nullptr) return nullptr;
  while (!g_copies.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {
  }
  return &fresh->functions;
}

}  // namespace

const void* code_of_provider(const ibv_context& context) {
  const ibv_context_ops& ops = context.ops;
  if (ops.post_send != nullptr) return reinterpret_cast<const void*>(ops.post_send);
  return reinterpret_cast<const void*>(ops.poll_cq);
}

const VerbsLibrary* verbs_library_behind(const void* code) {
  VerbsLibrary copy;
  bool found = false;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.holds(code)) return false;
    found = read_copy(object.tables(), copy) || read_copy_behind(object.tables(), copy);
    return true;
  });
  return found ? known(copy) : nullptr;
}

const VerbsLibrary* verbs_library(Error& error) { return load_once<VerbsLibrary, load>(error); }

const VerbsLibrary* loaded_verbs_library(Error& error) {
  void* const there = load_library(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  if (there == nullptr) {
    error = Error::make(ENOENT,
                        "%s is not loaded in this process: a protection domain of a libibverbs inside "
                        "the program itself cannot be borrowed",
                        kLibrary);
    return nullptr;
  }
  const VerbsLibrary* const verbs = verbs_library(error);
  ::dlclose(there);
  return verbs;
}

}  // namespace pinion
#endif
