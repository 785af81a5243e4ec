// The inside of the C API, for the libraries that stand on libpinion.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/error.h"

struct pinion_domain;

namespace pinion {

/// The calling thread's text of pinion_last_error(). Returns the error's code.
int set_last_error(const Error& error);
/// The domain's number in the running engine.
int domain_number(const pinion_domain* domain);

// ---- structures that may grow: the first field is the size with which the caller was compiled ----

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
