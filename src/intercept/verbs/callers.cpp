#include "intercept/verbs/callers.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <string_view>

#include "callsite/call_site.h"
#include "intercept/definitions.h"
#include "intercept/scopes.h"

namespace pinion::verbs {

namespace {

/// The name of the file with this code, without its directory; empty for the program.
std::string_view file_of(Address return_address) {
  const std::string_view file = file_around(reinterpret_cast<const void*>(return_address));
  return file.substr(file.rfind('/') + 1);
}

/// Python's wheels put a hash between name and ending: libfabric-0a1b2c3d.so.1.
bool is_cache(std::string_view name) {
  for (const std::string_view library : {"libuct", "mca_", "libmca_"})
    if (name.starts_with(library)) return true;
  const std::string_view library = name.substr(0, name.find('.'));
  for (const std::string_view own : {"libucm", "libfabric", "libopen-pal", "libmpi"})
    if (library.starts_with(own) && (library == own || library[own.size()] == '-')) return true;
  return name.ends_with("-fi.so");  // a provider of libfabric, as a plugin
}

/// The next functions of the caller's object. Where they are those of a copy, and another one has opened the
/// context, that one's.
void find_functions(Caller& caller, const void* code, const VerbsLibrary* opener) {
  for_each_function(caller.next, [&]<class F>(F& function, const char* name, bool) {
    void* found = definition_for(code, name);
    const bool is_copys = found != nullptr && definition_beside(found, "ibv_open_device") != nullptr;
    if (is_copys && opener != nullptr)
      found = definition_beside(reinterpret_cast<const void*>(opener->open_device), name);
    function = reinterpret_cast<F>(found);
  });
}

Caller look_at(Address return_address, const void* provider) {
  const auto* const code = reinterpret_cast<const void*>(return_address);
  Caller caller;
  caller.library = provider != nullptr ? verbs_library_behind(provider) : nullptr;
  find_functions(caller, code, caller.library);
  if (caller.library == nullptr && caller.next.dereg_mr != nullptr)
    caller.library = verbs_library_behind(reinterpret_cast<const void*>(caller.next.dereg_mr));
  caller.caches_itself = is_cache(file_of(return_address));
  return caller;
}

/// An answer, for calls from one place by objects of one provider.
struct Known {
  Address return_address = 0;
  const void* provider = nullptr;
  Caller caller;
  const Known* next = nullptr;  ///< of all that there are

  bool is_same(const Known& other) const {
    return return_address == other.return_address && provider == other.provider && caller == other.caller;
  }
};
constinit std::array<std::atomic<const Known*>, 256> g_answers{};
constinit std::atomic<const Known*> g_all{nullptr};
constinit std::atomic<std::uint32_t> g_generation{0};

/// Other code may be where code was unmapped. An answer that another thread gives meanwhile is of code that
/// is on its stack, and right.
void forget_the_unmapped() {
  const std::uint32_t now = code_generation();
  if (g_generation.exchange(now, std::memory_order_relaxed) == now) return;
  for (auto& answer : g_answers) answer.store(nullptr, std::memory_order_relaxed);
}

/// A place that is asked about again has the same answer mostly, so answers stay. Null: there is no memory.
const Known* kept(const Known& known) {
  for (const Known* one = g_all.load(std::memory_order_acquire); one != nullptr; one = one->next)
    if (one->is_same(known)) return one;
  auto* const fresh = new (std::nothrow) Known(known);
  if (fresh == nullptr) return nullptr;
  fresh->next = g_all.load(std::memory_order_acquire);
  while (!g_all.compare_exchange_weak(fresh->next, fresh, std::memory_order_acq_rel)) {
  }
  return fresh;
}

}  // namespace

Caller caller_at(Address return_address, const ibv_context* context) {
  forget_the_unmapped();
  const void* const provider = context != nullptr ? code_of_provider(*context) : nullptr;
  const Address mixed = return_address ^ reinterpret_cast<Address>(provider) << 1;
  auto& answer = g_answers[(mixed * 0x9E3779B97F4A7C15ull) >> 56];
  const Known* const known = answer.load(std::memory_order_acquire);
  if (known != nullptr && known->return_address == return_address && known->provider == provider)
    return known->caller;
  const Known fresh{return_address, provider, look_at(return_address, provider)};
  answer.store(kept(fresh), std::memory_order_release);
  return fresh.caller;
}

bool is_ucx(Address return_address) { return file_of(return_address).starts_with("libuct"); }

}  // namespace pinion::verbs
