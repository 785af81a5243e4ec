// Which function a name means for cuGetProcAddress, by version and kind of default stream.
#include "support/made_up_cuda/names.h"

#include <cstdlib>
#include <cstring>

/// Names that have one function: the name, its symbol, the first version that has it.
#define MADE_UP_SINGLES(X)                                                       \
  X(cuInit, cuInit, 2000)                                                        \
  X(cuDriverGetVersion, cuDriverGetVersion, 2020)                                \
  X(cuDeviceGet, cuDeviceGet, 2000)                                              \
  X(cuDeviceGetCount, cuDeviceGetCount, 2000)                                    \
  X(cuDeviceGetName, cuDeviceGetName, 2000)                                      \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040)                                  \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010)                              \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                                 \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, 2000)                            \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)                    \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease, 7000)                  \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)              \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset, 7000)                      \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)                  \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)                \
  X(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000)            \
  X(cuCtxCreate, cuCtxCreate_v2, 3020)                                           \
  X(cuCtxCreate, cuCtxCreate_v3, 11040)                                          \
  X(cuCtxCreate, cuCtxCreate_v4, 12050)                                          \
  X(cuCtxDestroy, cuCtxDestroy, 2000)                                            \
  X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                         \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000)                                 \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000)                                   \
  X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                      \
  X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                      \
  X(cuCtxGetId, cuCtxGetId, 12000)                                               \
  X(cuCtxGetDevice, cuCtxGetDevice, 2000)                                        \
  X(cuCtxGetFlags, cuCtxGetFlags, 7000)                                          \
  X(cuCtxGetApiVersion, cuCtxGetApiVersion, 3020)                                \
  X(cuCtxSynchronize, cuCtxSynchronize, 2000)                                    \
  X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                         \
  X(cuMemAlloc, cuMemAlloc_v2, 3020)                                             \
  X(cuMemFree, cuMemFree_v2, 3020)                                               \
  X(cuMemHostRegister, cuMemHostRegister, 4000)                                  \
  X(cuMemHostRegister, cuMemHostRegister_v2, 6050)                               \
  X(cuMemHostUnregister, cuMemHostUnregister, 4000)                              \
  X(cuMemHostAlloc, cuMemHostAlloc, 2020)                                        \
  X(cuMemAllocHost, cuMemAllocHost_v2, 3020)                                     \
  X(cuMemFreeHost, cuMemFreeHost, 2000)                                          \
  X(cuMemHostGetFlags, cuMemHostGetFlags, 2030)                                  \
  X(cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020)               \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020)                         \
  X(cuMemcpyHtoD, cuMemcpyHtoD, 2000)                                            \
  X(cuMemcpyDtoH, cuMemcpyDtoH, 2000)                                            \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync, 2000)                                  \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync, 2000)                                  \
  X(cuMemcpyOfTomorrow, cuMemcpyOfTomorrow, 13010)                               \
  X(cuArrayCreate, cuArrayCreate_v2, 3020)                                       \
  X(cuArray3DCreate, cuArray3DCreate_v2, 3020)                                   \
  X(cuArrayDestroy, cuArrayDestroy, 2000)                                        \
  X(cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2, 3020)                     \
  X(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                          \
  X(cuPointerGetAttributes, cuPointerGetAttributes, 7000)                        \
  X(cuStreamCreate, cuStreamCreate, 2000)                                        \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050)                \
  X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                                   \
  X(cuEventCreate, cuEventCreate, 2000)                                          \
  X(cuEventDestroy, cuEventDestroy_v2, 4000)                                     \
  X(cuEventQuery, cuEventQuery, 2000)                                            \
  X(cuEventSynchronize, cuEventSynchronize, 2000)                                \
  X(cuEventElapsedTime, cuEventElapsedTime, 2000)                                \
  X(cuModuleLoadData, cuModuleLoadData, 2000)                                    \
  X(cuModuleUnload, cuModuleUnload, 2000)                                        \
  X(cuModuleGetFunction, cuModuleGetFunction, 2000)                              \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010) \
  X(cuGraphCreate, cuGraphCreate, 10000)                                         \
  X(cuGraphDestroy, cuGraphDestroy, 10000)                                       \
  X(cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000)                           \
  X(cuGraphMemcpyNodeSetParams, cuGraphMemcpyNodeSetParams, 10000)               \
  X(cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020)       \
  X(cuGraphAddNode, cuGraphAddNode, 12020)                                       \
  X(cuGraphAddNode, cuGraphAddNode_v2, 12030)                                    \
  X(cuGraphNodeSetParams, cuGraphNodeSetParams, 12020)                           \
  X(cuGraphExecNodeSetParams, cuGraphExecNodeSetParams, 12020)                   \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040)             \
  X(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                               \
  X(cuGetProcAddress, cuGetProcAddress, 11030)                                   \
  X(cuGetProcAddress, cuGetProcAddress_v2, 12000)                                \
  X(cuCtxDetach, cuCtxDetach, 2000)                                              \
  X(cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000)                           \
  X(cuGraphMemsetNodeSetParams, cuGraphMemsetNodeSetParams, 10000)               \
  X(cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020)       \
  X(cuLaunch, cuLaunch, 2000)                                                    \
  X(cuLaunchGrid, cuLaunchGrid, 2000)                                            \
  X(cuLaunchGridAsync, cuLaunchGridAsync, 2000)

/// Names that have a second function for the per-thread default stream: its suffix comes third.
#define MADE_UP_DOUBLES(X)                                                              \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, _ptds, 3020)                                         \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, _ptds, 3020)                                         \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, _ptds, 3020)                                         \
  X(cuMemcpy, cuMemcpy, _ptds, 4000)                                                    \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, _ptsz, 3020)                               \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, _ptsz, 3020)                               \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, _ptsz, 3020)                               \
  X(cuMemcpyAsync, cuMemcpyAsync, _ptsz, 4000)                                          \
  X(cuMemcpyPeer, cuMemcpyPeer, _ptds, 4000)                                            \
  X(cuMemcpyPeerAsync, cuMemcpyPeerAsync, _ptsz, 4000)                                  \
  X(cuMemcpy2D, cuMemcpy2D_v2, _ptds, 3020)                                             \
  X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2, _ptds, 3020)                           \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, _ptsz, 3020)                                   \
  X(cuMemcpy3D, cuMemcpy3D_v2, _ptds, 3020)                                             \
  X(cuMemcpy3DAsync, cuMemcpy3DAsync_v2, _ptsz, 3020)                                   \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync, _ptsz, 12080)                               \
  X(cuMemcpyBatchAsync, cuMemcpyBatchAsync_v2, _ptsz, 13000)                            \
  X(cuMemsetD8, cuMemsetD8_v2, _ptds, 3020)                                             \
  X(cuMemsetD8Async, cuMemsetD8Async, _ptsz, 3020)                                      \
  X(cuMemsetD32, cuMemsetD32_v2, _ptds, 3020)                                           \
  X(cuMemsetD32Async, cuMemsetD32Async, _ptsz, 3020)                                    \
  X(cuMemcpyHtoA, cuMemcpyHtoA_v2, _ptds, 3020)                                         \
  X(cuMemcpyAtoH, cuMemcpyAtoH_v2, _ptds, 3020)                                         \
  X(cuMemcpyHtoAAsync, cuMemcpyHtoAAsync_v2, _ptsz, 3020)                               \
  X(cuMemcpyAtoHAsync, cuMemcpyAtoHAsync_v2, _ptsz, 3020)                               \
  X(cuMemcpy3DPeer, cuMemcpy3DPeer, _ptds, 4000)                                        \
  X(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, _ptsz, 4000)                              \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync, _ptsz, 12080)                           \
  X(cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_v2, _ptsz, 13000)                        \
  X(cuMemsetD16, cuMemsetD16_v2, _ptds, 3020)                                           \
  X(cuMemsetD16Async, cuMemsetD16Async, _ptsz, 3020)                                    \
  X(cuStreamWriteValue32, cuStreamWriteValue32, _ptsz, 8000)                            \
  X(cuStreamWriteValue32, cuStreamWriteValue32_v2, _ptsz, 11070)                        \
  X(cuStreamAddCallback, cuStreamAddCallback, _ptsz, 5000)                              \
  X(cuMemsetD2D8, cuMemsetD2D8_v2, _ptds, 3020)                                         \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async, _ptsz, 3020)                                  \
  X(cuMemsetD2D16, cuMemsetD2D16_v2, _ptds, 3020)                                       \
  X(cuMemsetD2D16Async, cuMemsetD2D16Async, _ptsz, 3020)                                \
  X(cuMemsetD2D32, cuMemsetD2D32_v2, _ptds, 3020)                                       \
  X(cuMemsetD2D32Async, cuMemsetD2D32Async, _ptsz, 3020)                                \
  X(cuStreamQuery, cuStreamQuery, _ptsz, 2000)                                          \
  X(cuStreamSynchronize, cuStreamSynchronize, _ptsz, 2000)                              \
  X(cuStreamGetCtx, cuStreamGetCtx, _ptsz, 9020)                                        \
  X(cuStreamGetFlags, cuStreamGetFlags, _ptsz, 5050)                                    \
  X(cuStreamGetPriority, cuStreamGetPriority, _ptsz, 5050)                              \
  X(cuStreamWaitEvent, cuStreamWaitEvent, _ptsz, 3020)                                  \
  X(cuStreamWaitValue32, cuStreamWaitValue32, _ptsz, 8000)                              \
  X(cuStreamWaitValue32, cuStreamWaitValue32_v2, _ptsz, 11070)                          \
  X(cuEventRecord, cuEventRecord, _ptsz, 2000)                                          \
  X(cuLaunchHostFunc, cuLaunchHostFunc, _ptsz, 10000)                                   \
  X(cuLaunchHostFunc, cuLaunchHostFunc_v2, _ptsz, 13010)                                \
  X(cuLaunchKernel, cuLaunchKernel, _ptsz, 4000)                                        \
  X(cuStreamBeginCapture, cuStreamBeginCapture, _ptsz, 10000)                           \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, _ptsz, 10010)                        \
  X(cuStreamEndCapture, cuStreamEndCapture, _ptsz, 10000)                               \
  X(cuStreamIsCapturing, cuStreamIsCapturing, _ptsz, 10000)                             \
  X(cuGraphLaunch, cuGraphLaunch, _ptsz, 10000)                                         \
  X(cuMemcpyDtoA, cuMemcpyDtoA_v2, _ptds, 3020)                                         \
  X(cuMemcpyAtoD, cuMemcpyAtoD_v2, _ptds, 3020)                                         \
  X(cuMemcpyAtoA, cuMemcpyAtoA_v2, _ptds, 3020)                                         \
  X(cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync, _ptsz, 13020)             \
  X(cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync, _ptsz, 13020)         \
  X(cuLaunchKernelEx, cuLaunchKernelEx, _ptsz, 11060)                                   \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, _ptsz, 9000)                  \
  X(cuGraphUpload, cuGraphUpload, _ptsz, 11010)                                         \
  X(cuStreamAttachMemAsync, cuStreamAttachMemAsync, _ptsz, 6000)                        \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, _ptsz, 11010)                       \
  X(cuStreamWaitValue64, cuStreamWaitValue64, _ptsz, 9000)                              \
  X(cuStreamWaitValue64, cuStreamWaitValue64_v2, _ptsz, 11070)                          \
  X(cuStreamWriteValue64, cuStreamWriteValue64, _ptsz, 9000)                            \
  X(cuStreamWriteValue64, cuStreamWriteValue64_v2, _ptsz, 11070)                        \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp, _ptsz, 8000)                                \
  X(cuStreamBatchMemOp, cuStreamBatchMemOp_v2, _ptsz, 11070)                            \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync, _ptsz, 8000)                                \
  X(cuMemPrefetchAsync, cuMemPrefetchAsync_v2, _ptsz, 12020)                            \
  X(cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync, _ptsz, 13000)                     \
  X(cuMemDiscardBatchAsync, cuMemDiscardBatchAsync, _ptsz, 13000)                       \
  X(cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync, _ptsz, 13000) \
  X(cuMemBatchDecompressAsync, cuMemBatchDecompressAsync, _ptsz, 12060)                 \
  X(cuMemMapArrayAsync, cuMemMapArrayAsync, _ptsz, 11010)                               \
  X(cuMemAllocAsync, cuMemAllocAsync, _ptsz, 11020)                                     \
  X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, _ptsz, 11020)                     \
  X(cuMemFreeAsync, cuMemFreeAsync, _ptsz, 11020)                                       \
  X(cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, _ptsz, 10000)     \
  X(cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, _ptsz, 10000)         \
  X(cuGraphicsMapResources, cuGraphicsMapResources, _ptsz, 3000)                        \
  X(cuGraphicsUnmapResources, cuGraphicsUnmapResources, _ptsz, 3000)                    \
  X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, _ptsz, 12030)

// Their parameters are of no matter here.
namespace declared {
extern "C" {
#define MADE_UP_SINGLE(name, symbol, version) void symbol();
#define MADE_UP_DOUBLE(name, symbol, suffix, version) \
  void symbol();                                      \
  void symbol##suffix();
MADE_UP_SINGLES(MADE_UP_SINGLE)
MADE_UP_DOUBLES(MADE_UP_DOUBLE)
#undef MADE_UP_SINGLE
#undef MADE_UP_DOUBLE
}
}  // namespace declared

namespace pinion::made_up_cuda {
namespace {

struct Name {
  const char* name;
  int version;
  void (*legacy)();
  void (*per_thread)();
};
constexpr Name kNames[] = {
#define MADE_UP_SINGLE(name, symbol, version) {#name, version, declared::symbol, nullptr},
#define MADE_UP_DOUBLE(name, symbol, suffix, version) \
  {#name, version, declared::symbol, declared::symbol##suffix},
    MADE_UP_SINGLES(MADE_UP_SINGLE) MADE_UP_DOUBLES(MADE_UP_DOUBLE)
#undef MADE_UP_SINGLE
#undef MADE_UP_DOUBLE
};

constexpr std::uint64_t kPerThread = 2;

}  // namespace

namespace {

/// A function for names that nobody needs to work.
Result not_supported() { return kNotSupported; }

}  // namespace

NameStatus look_up(const char* name, int version, std::uint64_t flags, void** function) {
  NameStatus status = kNoSuchName;
  *function = nullptr;
  for (const Name& known : kNames) {
    if (std::strcmp(known.name, name) != 0) continue;
    if (known.version > version) {
      if (!*function) status = kNewerOnly;
      continue;
    }
    const bool per_thread = (flags & kPerThread) && known.per_thread;
    *function = reinterpret_cast<void*>(per_thread ? known.per_thread : known.legacy);
    status = kFound;
  }
  static const bool any_name = std::getenv("MADE_UP_CUDA_ANY_NAME") != nullptr;
  if (status == kNoSuchName && any_name && std::strncmp(name, "cu", 2) == 0) {
    *function = reinterpret_cast<void*>(&not_supported);
    status = kFound;
  }
  return status;
}

}  // namespace pinion::made_up_cuda
