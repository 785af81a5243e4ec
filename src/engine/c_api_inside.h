// The inside of the C API, for the libraries that stand on libpinion.
#pragma once

#include "base/error.h"

struct pinion_domain;

namespace pinion {

/// The calling thread's text of pinion_last_error(). Returns the error's code.
int set_last_error(const Error& error);
/// The domain's number in the running engine.
int domain_number(const pinion_domain* domain);

}  // namespace pinion
