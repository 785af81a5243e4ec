// Types and result codes of the made-up driver. Owns nothing; plain values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "gpu/driver.h"

namespace pinion::made_up_cuda {

using gpu::Copy3D;
using gpu::DevicePointer;
using gpu::kSuccess;
using gpu::Result;

inline constexpr Result kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kDeinitialized = 4,
                        kNoDevice = 100, kInvalidDevice = 101, kInvalidContext = 201, kInvalidHandle = 400,
                        kNotFound = 500, kNotReady = 600, kIllegalAddress = 700, kContextDestroyed = 709,
                        kAlreadyRegistered = 712, kNotRegistered = 713, kLaunchFailed = 719,
                        kNotPermitted = 800, kNotSupported = 801, kCaptureUnsupported = 900,
                        kCaptureInvalidated = 901, kCaptureImplicit = 906, kCapturedEvent = 907,
                        kCaptureWrongThread = 908;

/// Handles are numbers that nobody dereferences.
using Handle = void*;

/// The stream that a null handle means, by the version of the called function.
enum class Default { kLegacy, kPerThread };

}  // namespace pinion::made_up_cuda
