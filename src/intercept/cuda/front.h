// The front for CUDA: what becomes of a call of the program that copies host memory, before it reaches the
// driver. entries.cpp decodes the calls; this decides.
//
// The law: no call reaches the driver while its host memory touches a registration of ours, unless it holds a
// lease and the front waits for it. A call that passes keeps its memory closed to registration until it
// returns (device/cuda/host_ranges.h).
//
// Any thread of the program, outside of memory hooks. `plain` calls the driver's own function with the
// program's arguments, or with another host pointer in place of its own.
#pragma once

#include <span>

#include "base/function_ref.h"
#include "callsite/unwind.h"
#include "device/cuda/block.h"
#include "intercept/cuda/copy_call.h"

namespace pinion::cuda {

/// Makes a linear copy: registered, staged, or plain.
Result copy(const LinearCopy& copy, const EntryFrame& entry, FunctionRef<Result(void* host)> plain);

/// Makes any other call that uses this host memory (2D, 3D, batches, graph nodes, memset): plain, after
/// regions of ours have gone from it. The blocks are put in order. They are kept (kept.h), as a jump leaves
/// them closed.
Result pass(std::span<Block> blocks, FunctionRef<Result()> plain);

/// Makes a call after whose return the driver may use the memory: like pass(), and the memory stays barred
/// from registration until they are unmapped. A graph may be launched at any time, and nothing tells when a
/// batch has read its last source: waiting for that could hold the program up for ever.
Result pass_for_good(std::span<Block> blocks, FunctionRef<Result()> plain);

/// Notes that a call which passed has been captured: a graph may use the blocks at any time. The call has not
/// returned to pass() yet.
void bar_captured(std::span<const Block> blocks);

/// Deregisters the regions whose memory is gone.
void let_doomed_go();

/// A function that copies host memory, and that this build does not know, is about to be called for the first
/// time: registered copies end, with one line, and no registration is left at the return. Staged copies go
/// on.
void unknown_copy(const char* name);

}  // namespace pinion::cuda
