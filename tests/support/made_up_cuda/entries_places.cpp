// Work that does nothing here, but has its place in a stream.
#include "support/made_up_cuda/entry.h"
#include "support/made_up_cuda/submissions.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace {

/// CUmemLocation.
struct Location {
  int type, id;
};

}  // namespace

/// Defines a call whose work does nothing, in its argument `stream`.
#define MADE_UP_PLACE(name, parameters, arguments)   \
  MADE_UP_PAIR(name, _ptsz, parameters, arguments) { \
    MADE_UP_STREAM(known, stream);                   \
    return put(call, known, nullptr);                \
  }                                                  \
  MADE_UP_END

MADE_UP_PLACE(cuGraphUpload, (Handle executable, Handle stream), (executable, stream))
MADE_UP_PLACE(cuStreamAttachMemAsync,
              (Handle stream, DevicePointer memory, std::size_t bytes, unsigned flags),
              (stream, memory, bytes, flags))
MADE_UP_PLACE(cuMemPrefetchAsync, (DevicePointer memory, std::size_t bytes, int device, Handle stream),
              (memory, bytes, device, stream))
MADE_UP_PLACE(cuMemPrefetchAsync_v2,
              (DevicePointer memory, std::size_t bytes, Location place, unsigned flags, Handle stream),
              (memory, bytes, place, flags, stream))
MADE_UP_PLACE(cuMemPrefetchBatchAsync,
              (DevicePointer * memory, std::size_t* bytes, std::size_t count, Location* places,
               std::size_t* indices, std::size_t place_count, unsigned long long flags, Handle stream),
              (memory, bytes, count, places, indices, place_count, flags, stream))
MADE_UP_PLACE(cuMemDiscardBatchAsync,
              (DevicePointer * memory, std::size_t* bytes, std::size_t count, unsigned long long flags,
               Handle stream),
              (memory, bytes, count, flags, stream))
MADE_UP_PLACE(cuMemDiscardAndPrefetchBatchAsync,
              (DevicePointer * memory, std::size_t* bytes, std::size_t count, Location* places,
               std::size_t* indices, std::size_t place_count, unsigned long long flags, Handle stream),
              (memory, bytes, count, places, indices, place_count, flags, stream))
MADE_UP_PLACE(cuMemBatchDecompressAsync,
              (void* parameters, std::size_t count, unsigned flags, std::size_t* failed, Handle stream),
              (parameters, count, flags, failed, stream))
MADE_UP_PLACE(cuMemMapArrayAsync, (void* infos, unsigned count, Handle stream), (infos, count, stream))
MADE_UP_PLACE(cuSignalExternalSemaphoresAsync,
              (const Handle* semaphores, const void* parameters, unsigned count, Handle stream),
              (semaphores, parameters, count, stream))
MADE_UP_PLACE(cuWaitExternalSemaphoresAsync,
              (const Handle* semaphores, const void* parameters, unsigned count, Handle stream),
              (semaphores, parameters, count, stream))
MADE_UP_PLACE(cuGraphicsMapResources, (unsigned count, Handle* resources, Handle stream),
              (count, resources, stream))
MADE_UP_PLACE(cuGraphicsUnmapResources, (unsigned count, Handle* resources, Handle stream),
              (count, resources, stream))
