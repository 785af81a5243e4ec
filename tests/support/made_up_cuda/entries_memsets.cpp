// Memsets, of the device's memory and of registered host memory.
#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

/// Rows of elements.
struct Rows {
  DevicePointer to;
  std::size_t pitch, width, height;
};

template <class Value>
Result set(Call& call, Default meaning, const void* handle, const Rows& rows, Value value, bool async) {
  MADE_UP_STREAM(stream, handle);
  if (rows.width == 0 || rows.height == 0) return kSuccess;
  const auto bytes = std::make_shared<std::vector<char>>(sizeof value * rows.width * rows.height);
  for (std::size_t i = 0; i < rows.width * rows.height; ++i)
    std::memcpy(bytes->data() + i * sizeof value, &value, sizeof value);
  // The source of the rows is this block, which the work reads instead of an address. Registrations of the
  // program may lie around it.
  Transfer transfer;
  transfer.width = transfer.from.pitch = sizeof value * rows.width;
  transfer.height = rows.height;
  transfer.from.address = reinterpret_cast<pinion::Address>(bytes->data());
  transfer.from.drivers = true;
  transfer.to.address = rows.to;
  transfer.to.pitch = rows.pitch;
  if (const Result refused = check_capture(*stream)) return refused;
  if (const Result refused = prepare(transfer, true)) return refused;
  if (transfer.to.pageable()) return kInvalidValue;
  const auto body = [transfer, bytes] { return run(transfer, bytes.get()); };
  if (stream->capture) {
    record(*stream, {{}, body, nullptr});
    return kSuccess;
  }
  enter(call.lock(), *stream, call.name());
  auto work = std::make_shared<Work>();
  work->run = body;
  submit(stream, work);
  return async ? kSuccess : await(call.lock(), *stream->context, *work, call.name());
}

}  // namespace

/// Defines the four memsets of a kind of element.
#define MADE_UP_MEMSETS(bits, type)                                                                      \
  MADE_UP_PAIR(cuMemsetD##bits##_v2, _ptds, (DevicePointer to, type value, std::size_t count),           \
               (to, value, count)) {                                                                     \
    return set(call, meaning, nullptr, {to, count * sizeof value, count, 1}, value, false);              \
  }                                                                                                      \
  MADE_UP_END                                                                                            \
  MADE_UP_PAIR(cuMemsetD##bits##Async, _ptsz,                                                            \
               (DevicePointer to, type value, std::size_t count, Handle stream),                         \
               (to, value, count, stream)) {                                                             \
    return set(call, meaning, stream, {to, count * sizeof value, count, 1}, value, true);                \
  }                                                                                                      \
  MADE_UP_END                                                                                            \
  MADE_UP_PAIR(cuMemsetD2D##bits##_v2, _ptds,                                                            \
               (DevicePointer to, std::size_t pitch, type value, std::size_t width, std::size_t height), \
               (to, pitch, value, width, height)) {                                                      \
    return set(call, meaning, nullptr, {to, pitch, width, height}, value, false);                        \
  }                                                                                                      \
  MADE_UP_END                                                                                            \
  MADE_UP_PAIR(cuMemsetD2D##bits##Async, _ptsz,                                                          \
               (DevicePointer to, std::size_t pitch, type value, std::size_t width, std::size_t height,  \
                Handle stream),                                                                          \
               (to, pitch, value, width, height, stream)) {                                              \
    return set(call, meaning, stream, {to, pitch, width, height}, value, true);                          \
  }                                                                                                      \
  MADE_UP_END

MADE_UP_MEMSETS(8, unsigned char)
MADE_UP_MEMSETS(16, unsigned short)  // NOLINT(google-runtime-int): the driver's own type
MADE_UP_MEMSETS(32, unsigned)
