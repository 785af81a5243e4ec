// Copies between pageable host memory and a device in pieces, through pinned memory of our own: threads copy
// (copy_threads.h) while the device's engine takes what is there. It needs no registration of the program's
// memory.
//
// As a plain copy, it begins when the stream has done all work before it, ends when its last piece has, and
// no other thread's work comes between its pieces (submission_gate.h). It waits for events of its own, right
// behind its pieces, never for the whole stream. While earlier work keeps the stream, it keeps nobody out.
//
// Any thread, outside of memory hooks and of an Entry of the gate.
#pragma once

#include <optional>

#include "intercept/cuda/copy_call.h"

namespace pinion::cuda {

/// Makes the copy, and counts it (lease/copy_counters.h). Nothing: it cannot be staged, and nothing has
/// happened; the caller passes it plain. The copy's range is closed meanwhile, or holds no registration of
/// ours.
std::optional<Result> staged_copy(const Driver& driver, const LinearCopy& copy);

/// Contexts were destroyed, reset or released, or will be. `id` is what cuCtxGetId says; 0: any.
void staging_contexts_changed(unsigned long long id);

}  // namespace pinion::cuda
