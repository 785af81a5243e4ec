// The inside of the C API, for its files and for the libraries that stand on libpinion: the handle of a
// domain, and errors as errno values and this thread's text.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/range.h"
#include "runlog/format.h"

namespace pinion {
class Engine;
class LeasePath;
}  // namespace pinion

struct pinion_domain {
  pinion::Engine* engine;
  pinion::LeasePath* leases;  ///< the engine's
  int number;
  // The counters when the domain was opened: the engine may have used the place before.
  pinion::runlog::Counters before;
  std::uint64_t ahead_before;
  std::atomic<int> preparations{0};  ///< their handles
};

namespace pinion {

/// The calling thread's text of pinion_last_error(). Returns the error's code.
int set_last_error(const Error& error);
/// The domain's number in the running engine.
int domain_number(const pinion_domain* domain);

inline int fail(const Error& error) { return set_last_error(error); }

/// Runs `body`, which returns an errno value.
template <class Body>
[[gnu::always_inline]] inline int guarded(const char* call, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Error::make(ENOMEM, "%s: out of memory", call));
  }
}

inline bool is_range(const void* address, std::size_t bytes) {
  return is_addressable(reinterpret_cast<Address>(address), bytes);
}

[[gnu::cold]] int bad_range(const char* call, const void* address, std::size_t bytes);
/// `domain`: the one of the call, or null.
[[gnu::cold]] int not_running(const char* call, const pinion_domain* domain);
[[gnu::cold]] int no_context(const char* call);

// ---- structures that may grow: the first field is the size with which the caller was compiled ----

template <class Struct>
bool is_sized(const Struct* out) {
  return out && out->size >= sizeof out->size;
}

template <class Struct>
[[gnu::cold]] int bad_struct(const char* call, const Struct* out) {
  if (!out) return fail(Error::make(EINVAL, "%s: there is no place for the answer (NULL)", call));
  return fail(Error::make(EINVAL, "%s: set the field `size` to the size of the structure, %zu (it is %zu)",
                          call, sizeof *out, out->size));
}

/// Fills the part that the caller has, and stores its size.
template <class Struct>
int fill(Struct* out, Struct values) {
  values.size = std::min(out->size, sizeof values);
  std::memcpy(static_cast<void*>(out), &values, values.size);
  return 0;
}

/// The fields that the caller has; the others are 0.
template <class Struct>
Struct given(const Struct& in) {
  if (in.size >= sizeof in) return in;
  Struct values{};
  std::memcpy(static_cast<void*>(&values), &in, in.size);
  return values;
}

}  // namespace pinion
