// When copies read, write and return: pinned ones in their stream's order, small pageable ones to the device
// from staging memory, all others while the call waits (evidence-gpu.md).
//
// Owns nothing (world.h does). Under the driver's mutex, which the calls release meanwhile.
#pragma once

#include "support/made_up_cuda/transfers.h"

namespace pinion::made_up_cuda {

/// A copy on its way into a stream.
struct StagedCopy {
  WorkPointer work;
  bool waits = false;
};
/// Makes the work of a prepared transfer; reads its source now where the driver would. Releases the mutex.
StagedCopy stage(Lock& lock, const Transfer& transfer);
/// The part of a stream's staging memory that a copy of so many bytes takes.
std::size_t staging_of(std::size_t bytes);
bool has_staging_room(const Stream& stream, std::size_t staging);

Result copy(Call& call, const StreamPointer& stream, Transfer transfer, bool async);

/// The access orders of a batch.
enum class AccessOrder { kStream = 1, kDuringCall = 2, kAny = 3 };
Result copy_batch(Call& call, const StreamPointer& stream, std::vector<Transfer> transfers,
                  AccessOrder order);

}  // namespace pinion::made_up_cuda
