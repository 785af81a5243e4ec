// Registered host memory: exact ranges of bytes that never overlap, each of the context that was current.
//
// Owns nothing (world.h does). Under the driver's mutex, which registering and its end release meanwhile.
#pragma once

#include "support/made_up_cuda/world.h"

namespace pinion::made_up_cuda {

Result register_memory(Call& call, Range range, unsigned flags, bool allocated);
/// Ends the registration that begins there, after all pending work of its context.
Result unregister_memory(Call& call, Address base, bool allocated);
/// Ends those of a context.
void end_registrations_of(Lock& lock, std::uint64_t context);

/// The registration that holds the address; null: none does.
RegistrationPointer registration_of(Address address);
/// The first byte decides: null is pageable memory. An error: the range leaves its registration.
Result classify(Range range, RegistrationPointer& found);

}  // namespace pinion::made_up_cuda
