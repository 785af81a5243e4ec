#include "intercept/cuda/reach.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/warning.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/front.h"
#include "intercept/definitions.h"
#include "intercept/exports.h"
#include "intercept/lookup.h"
#include "intercept/same_build.h"
#include "lease/engine_options.h"

namespace pinion::cuda {

extern "C" {
/// The targets of the linked names (entries.S).
[[gnu::visibility("hidden")]] extern std::atomic<void*> pinion_cuda_entries[];
}

namespace {

bool is_asked_for() {
  Options options;
  if (options_from_environment(options) || options.off) return false;
  return (options.front == Front::automatic || options.front == Front::cuda) && same_build_or_say_so();
}
/// Whether a library that is searched before the preload stands before libcuda too. It finds libcuda's
/// functions by ways of its own, which go past us.
bool is_preceded() {
  for (const char* const name : {"cuGetProcAddress_v2", "cuGetProcAddress", "cuMemcpyHtoD_v2"})
    if (is_defined_before_preload(name)) return true;
  return false;
}

enum Wanted : int { kUnasked, kNo, kYes };
/// No lock: see driver.cpp. Threads that find it out at the same time find the same.
constinit std::atomic<Wanted> g_wanted{kUnasked};

/// Whether what the program gets is wrapped.
bool wraps() {
  if (!has_driver()) return false;
  Wanted wanted = g_wanted.load(std::memory_order_acquire);
  if (wanted == kUnasked) {
    const bool preceded = is_preceded();
    wanted = !preceded && is_asked_for() ? kYes : kNo;
    if (g_wanted.exchange(wanted) == kUnasked && preceded && is_asked_for())
      warn(
          "another preload comes before Pinion's and serves the CUDA driver's calls: GPU copies stay as they "
          "are. Put Pinion's first");
  }
  return wanted == kYes;
}

/// Whether the code is the preload's. Two words, and no lock: see driver.cpp.
bool is_ours(const void* code) {
  static constinit std::atomic<Address> begin{0}, end{0};
  if (end.load(std::memory_order_acquire) == 0) {
    const Range preload = segment_around(reinterpret_cast<const void*>(&wrapped_address));
    begin.store(preload.begin, std::memory_order_relaxed);
    end.store(preload.end, std::memory_order_release);
  }
  return Range{begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)}.contains(
      Range::of(code, 1));
}

bool are_beside(const void* a, const void* b) {
  Dl_info first{}, second{};
  return ::dladdr(a, &first) != 0 && ::dladdr(b, &second) != 0 && first.dli_fbase == second.dli_fbase;
}

/// Whether a symbol that the table lacks copies host memory, by its name.
bool copies_host_memory(std::string_view symbol) {
  const auto names = [&](std::string_view part) { return symbol.find(part) != std::string_view::npos; };
  if (names("GetParams")) return false;
  // The forms with 32-bit device pointers (calls.inc).
  for (const Call* call = kCalls; call != kCalls + kCallCount; ++call)
    if (symbol == call->base) return false;
  return symbol.starts_with("cuMemcpy") || (symbol.starts_with("cuGraph") && names("Memcpy"));
}

// ---- functions that are unknown ----

struct Unknown {
  std::atomic<void*> behind{nullptr};
  std::atomic<const char*> name{nullptr};
};
/// Enough for a newer driver. They are taken in order.
constexpr std::size_t kUnknown = 16;
constinit std::array<Unknown, kUnknown> g_unknown{};

template <std::size_t index>
struct UnknownCall {
  using Function = FunctionOfWords<12>;
  template <class... A>
  static Result call(A... arguments) {
    const char* const name = g_unknown[index].name.load(std::memory_order_acquire);
    unknown_copy(name != nullptr ? name : "a function for copies");
    return reinterpret_cast<Function*>(g_unknown[index].behind.load(std::memory_order_acquire))(arguments...);
  }
  static void* address() {
    Function* const function = &call;
    return reinterpret_cast<void*>(function);
  }
};
template <std::size_t... index>
void* unknown_call(std::size_t wanted, std::index_sequence<index...>) {
  void* const addresses[] = {UnknownCall<index>::address()...};
  return addresses[wanted];
}

/// Copies cease to be registered when the program calls it.
void* announced(const char* name, void* found) {
  for (std::size_t i = 0; i < kUnknown; ++i) {
    void* none = nullptr;
    if (g_unknown[i].behind.compare_exchange_strong(none, found, std::memory_order_acq_rel))
      g_unknown[i].name.store(::strdup(name), std::memory_order_release);
    else if (none != found)
      continue;
    return unknown_call(i, std::make_index_sequence<kUnknown>());
  }
  unknown_copy(name);
  return found;
}

// ---- wrapping ----

void* wrapped(std::size_t call, void* found) {
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    void* none = nullptr;
    if (g_behind[call][layer].compare_exchange_strong(none, found, std::memory_order_acq_rel) ||
        none == found)
      return kCalls[call].wrappers[layer];
  }
  return announced(kCalls[call].symbol, found);
}

/// The form of a function that cuGetProcAddress answers with.
std::size_t form_of(const char* name, int version, bool per_thread) {
  std::size_t best = kCallCount;
  for (std::size_t i = 0; i < kCallCount; ++i) {
    const Call& call = kCalls[i];
    if (call.since > version || (call.per_thread && !per_thread) || std::strcmp(call.base, name) != 0)
      continue;
    const bool better = best == kCallCount || call.per_thread > kCalls[best].per_thread ||
                        (call.per_thread == kCalls[best].per_thread && call.since > kCalls[best].since);
    if (better) best = i;
  }
  return best;
}

bool is_exported_as(const void* found, const char* symbol) {
  return definition_beside(found, symbol) == found;
}

}  // namespace

void* wrapped_address(const char* name, int version, bool per_thread, void* found) {
  if (!wraps() || is_ours(found)) return found;
  // libcuda answers with functions that it exports: the symbol says which form it is.
  const std::size_t form = form_of(name, version, per_thread);
  if (form < kCallCount && is_exported_as(found, kCalls[form].symbol)) return wrapped(form, found);
  bool known = form < kCallCount;
  for (std::size_t i = 0; i < kCallCount; ++i) {
    if (std::strcmp(kCalls[i].base, name) != 0) continue;
    known = true;
    if (is_exported_as(found, kCalls[i].symbol)) return wrapped(i, found);
  }
  if (!known) return copies_host_memory(name) ? announced(name, found) : found;
  Dl_info info{};
  if (::dladdr(found, &info) != 0 && info.dli_saddr == found && info.dli_sname != nullptr)
    return copies_host_memory(info.dli_sname) ? announced(info.dli_sname, found) : found;
  return form < kCallCount ? wrapped(form, found) : found;
}

extern "C" {

/// Finds the target of a linked name at its first call. Before libcuda is there, the answer may change.
[[gnu::visibility("hidden"), gnu::used]] void* pinion_cuda_bind(std::atomic<void*>* entry) {
  const auto call = static_cast<std::size_t>(entry - pinion_cuda_entries);
  void* const next = first_definition(Where::behind_preload, kCallNames[call]);
  if (next == nullptr) {
    std::fprintf(stderr, "pinion: %s was called, but no library behind the preload defines it\n",
                 kCallNames[call]);
    std::abort();
  }
  if (!has_driver()) return next;
  void* const target = wraps() ? wrapped(call, next) : next;
  entry->store(target, std::memory_order_release);
  return target;
}
}

namespace {

/// The linked name's address: what the program gets by its own scope.
void* entry_of(std::size_t call) { return real_dlsym()(RTLD_DEFAULT, kCallNames[call]); }

/// A function that copies and that the preload does not define, as the program's scope has it.
Answer answer_unknown(const Question& question) {
  const auto [library, name, version, caller] = question;
  void* const found = library == RTLD_DEFAULT ? look_up(library, name, version) : nullptr;
  if (found == nullptr || !wraps() || are_beside(caller, found) || !is_code(found)) return kAsWithoutUs;
  return {announced(name, found), 1};
}

Answer answer_by_scope(const Question& question, std::size_t call) {
  const auto [library, name, version, caller] = question;
  if (first_definition(Where::anywhere, name) == nullptr) return {look_up(RTLD_NEXT, name, version), 1};
  if (call == kCallCount) return answer_unknown(question);
  // The program's scope has the preload in it, and what stands before it.
  if (library == RTLD_DEFAULT) return kAsWithoutUs;
  // A library that stands before libcuda too looks for what is behind it.
  return definition_beside(caller, name) != nullptr ? kAsWithoutUs : Answer{entry_of(call), 1};
}

}  // namespace

Answer answer(const Question& question) {
  const auto [library, name, version, caller] = question;
  const std::size_t call = call_of(name);
  if (call == kCallCount && !copies_host_memory(name)) return kAsWithoutUs;
  if (library == RTLD_DEFAULT || library == RTLD_NEXT) return answer_by_scope(question, call);
  // The program's own scope has the preload in it: the question is the next definition behind it. An indirect
  // function that resolves to null would leave no error for dlerror().
  const bool by_scope = library == _r_debug.r_map;
  if (by_scope && first_definition(Where::anywhere, name) == nullptr)
    return {look_up(RTLD_NEXT, name, version), 1};
  void* found = look_up(library, name, version);
  if (found == nullptr) return {nullptr, 1};
  if (is_ours(found)) {
    if (by_scope && look_up(RTLD_NEXT, name, version) == nullptr) found = nullptr;
    return {found, 1};
  }
  // A library that stands before libcuda gets its own functions as they are: a wrapper would lead back to it.
  if (!wraps() || are_beside(caller, found) || !is_code(found)) return {found, 1};
  return {call < kCallCount ? wrapped(call, found) : announced(name, found), 1};
}

}  // namespace pinion::cuda
