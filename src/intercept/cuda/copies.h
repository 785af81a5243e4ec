// The handlers of calls that copy or set memory: each tells the front (front.h) which host memory its call
// takes. They own nothing. Any thread, outside of memory hooks.
#pragma once

#include <span>
#include <type_traits>
#include <vector>

#include "device/cuda/batch_pieces.h"
#include "device/cuda/host_ranges.h"
#include "intercept/cuda/driver.h"
#include "intercept/cuda/end_of_copy.h"
#include "intercept/cuda/front.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/pointer_kind.h"
#include "intercept/cuda/shapes.h"
#include "intercept/cuda/submission_gate.h"
#include "intercept/cuda/wrapper.h"

namespace pinion::cuda {

/// Makes a call that puts work into the stream.
template <class Call>
Result submit(Stream stream, Call call) {
  const Kept<SubmissionGate::Entry> entry(submission_gate(), stream);
  return call();
}

enum class Returns { at_once, when_done };

/// Makes a call that uses the memory. A graph that captures it uses the memory at each launch. A call that
/// waits for its stream keeps other work of its context out of the driver.
template <class Call>
Result pass_in(Stream stream, Returns returns, Sides sides, Call call) {
  const Kept<Sides> kept(sides);
  return pass(*kept, [&] {
    const Context context = returns == Returns::when_done ? current_context(driver()) : nullptr;
    const Kept<SubmissionGate::Entry> entry(submission_gate(), stream, context);
    const Result result = call();
    if (captures(driver(), stream)) bar_captured(of_host(sides));
    return result;
  });
}

// ---- copies of one run of bytes ----

struct CopyIn {
  using Function = Result(DevicePointer, const void*, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer device, const void* host,
                       std::size_t bytes) {
    const Stream stream = from.default_stream;
    return copy({Direction::to_device, false, stream, device, const_cast<void*>(host), bytes}, from.entry,
                [&](void* memory) { return next(device, memory, bytes); });
  }
};
struct CopyOut {
  using Function = Result(void*, DevicePointer, std::size_t);
  static Result handle(const From& from, Function* next, void* host, DevicePointer device,
                       std::size_t bytes) {
    const Stream stream = from.default_stream;
    return copy({Direction::from_device, false, stream, device, host, bytes}, from.entry,
                [&](void* memory) { return next(memory, device, bytes); });
  }
};
struct CopyInAsync {
  using Function = Result(DevicePointer, const void*, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer device, const void* host,
                       std::size_t bytes, Stream given) {
    const Stream stream = from.stream(given);
    return copy({Direction::to_device, true, stream, device, const_cast<void*>(host), bytes}, from.entry,
                [&](void* memory) { return next(device, memory, bytes, given); });
  }
};
struct CopyOutAsync {
  using Function = Result(void*, DevicePointer, std::size_t, Stream);
  static Result handle(const From& from, Function* next, void* host, DevicePointer device, std::size_t bytes,
                       Stream given) {
    const Stream stream = from.stream(given);
    return copy({Direction::from_device, true, stream, device, host, bytes}, from.entry,
                [&](void* memory) { return next(memory, device, bytes, given); });
  }
};

/// A copy between two addresses, either of which may be a host's. Asking about them takes up to a
/// microsecond, which is much for a small copy: there both are taken for a host's.
inline constexpr std::size_t kLeastAsked = std::size_t{64} << 10;

template <class Call>
Result copy_unified(const From& from, LinearCopy way, DevicePointer to, DevicePointer source, Call call) {
  const Sides sides{touched(source, way.bytes), touched(to, way.bytes)};
  const auto passed = [&] {
    return pass_in(way.stream, way.async ? Returns::at_once : Returns::when_done, sides,
                   [&] { return call(to, source); });
  };
  // A small copy that meets a registration of ours must not wait for it.
  if (way.bytes < kLeastAsked && !host_ranges().touches_registration(sides[0].first) &&
      !host_ranges().touches_registration(sides[1].first))
    return passed();
  const PointerKind from_kind = kind_of(source), to_kind = kind_of(to);
  if (from_kind == PointerKind::host && to_kind == PointerKind::device) {
    way.direction = Direction::to_device, way.device = to, way.host = reinterpret_cast<void*>(source);
    return copy(way, from.entry,
                [&](void* memory) { return call(to, reinterpret_cast<DevicePointer>(memory)); });
  }
  if (from_kind == PointerKind::device && to_kind == PointerKind::host) {
    way.direction = Direction::from_device, way.device = source, way.host = reinterpret_cast<void*>(to);
    return copy(way, from.entry,
                [&](void* memory) { return call(reinterpret_cast<DevicePointer>(memory), source); });
  }
  if (from_kind == PointerKind::device && to_kind == PointerKind::device)
    return submit(way.stream, [&] { return call(to, source); });
  return passed();
}
struct CopyUnified {
  using Function = Result(DevicePointer, DevicePointer, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer to, DevicePointer source,
                       std::size_t bytes) {
    return copy_unified(from, {.stream = from.default_stream, .bytes = bytes}, to, source,
                        [&](DevicePointer end, DevicePointer begin) { return next(end, begin, bytes); });
  }
};
struct CopyUnifiedAsync {
  using Function = Result(DevicePointer, DevicePointer, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer to, DevicePointer source,
                       std::size_t bytes, Stream given) {
    return copy_unified(
        from, {.async = true, .stream = from.stream(given), .bytes = bytes}, to, source,
        [&](DevicePointer end, DevicePointer begin) { return next(end, begin, bytes, given); });
  }
};

// ---- other copies ----

struct BetweenDevices {
  using Function = Result(DevicePointer, DevicePointer, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer to, DevicePointer source,
                       std::size_t bytes) {
    return pass_in(from.default_stream, Returns::when_done, {touched(source, bytes), touched(to, bytes)},
                   [&] { return next(to, source, bytes); });
  }
};
struct BetweenDevicesAsync {
  using Function = Result(DevicePointer, DevicePointer, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer to, DevicePointer source,
                       std::size_t bytes, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once, {touched(source, bytes), touched(to, bytes)},
                   [&] { return next(to, source, bytes, stream); });
  }
};
struct BetweenPeers {
  using Function = Result(DevicePointer, Context, DevicePointer, Context, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer to, Context to_context,
                       DevicePointer source, Context source_context, std::size_t bytes) {
    return pass_in(from.default_stream, Returns::when_done, {touched(source, bytes), touched(to, bytes)},
                   [&] { return next(to, to_context, source, source_context, bytes); });
  }
};
struct BetweenPeersAsync {
  using Function = Result(DevicePointer, Context, DevicePointer, Context, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer to, Context to_context,
                       DevicePointer source, Context source_context, std::size_t bytes, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once, {touched(source, bytes), touched(to, bytes)},
                   [&] { return next(to, to_context, source, source_context, bytes, stream); });
  }
};
struct IntoArray {
  using Function = Result(void*, std::size_t, const void*, std::size_t);
  static Result handle(const From& from, Function* next, void* array, std::size_t offset, const void* host,
                       std::size_t bytes) {
    return pass_in(from.default_stream, Returns::when_done, {touched(host, bytes)},
                   [&] { return next(array, offset, host, bytes); });
  }
};
struct IntoArrayAsync {
  using Function = Result(void*, std::size_t, const void*, std::size_t, Stream);
  static Result handle(const From& from, Function* next, void* array, std::size_t offset, const void* host,
                       std::size_t bytes, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once, {touched(host, bytes)},
                   [&] { return next(array, offset, host, bytes, stream); });
  }
};
struct OutOfArray {
  using Function = Result(void*, void*, std::size_t, std::size_t);
  static Result handle(const From& from, Function* next, void* host, void* array, std::size_t offset,
                       std::size_t bytes) {
    return pass_in(from.default_stream, Returns::when_done, {touched(host, bytes)},
                   [&] { return next(host, array, offset, bytes); });
  }
};
struct OutOfArrayAsync {
  using Function = Result(void*, void*, std::size_t, std::size_t, Stream);
  static Result handle(const From& from, Function* next, void* host, void* array, std::size_t offset,
                       std::size_t bytes, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once, {touched(host, bytes)},
                   [&] { return next(host, array, offset, bytes, stream); });
  }
};

/// 2D and 3D.
template <class Shape>
struct InRows {
  using Function = Result(const Shape*);
  static Result handle(const From& from, Function* next, const Shape* shape) {
    if (shape == nullptr) return next(shape);
    return pass_in(from.default_stream, Returns::when_done, touched(*shape), [&] { return next(shape); });
  }
};
template <class Shape>
struct InRowsAsync {
  using Function = Result(const Shape*, Stream);
  static Result handle(const From& from, Function* next, const Shape* shape, Stream stream) {
    if (shape == nullptr) return next(shape, stream);
    return pass_in(from.stream(stream), Returns::at_once, touched(*shape),
                   [&] { return next(shape, stream); });
  }
};

// ---- copies whose sources may be read after the return ----

/// Makes a batch of copies: the driver may read their sources after the return.
template <class Call>
Result pass_batch(Stream stream, std::span<Block> blocks, Call call) {
  return pass_for_good(blocks, [&] { return submit(stream, call); });
}

/// `more`: the attributes, and for the first version the index of the copy that failed.
template <class... More>
struct BatchOf {
  using Function = Result(const DevicePointer*, const DevicePointer*, const std::size_t*, std::size_t,
                          More..., Stream);
  static Result handle(const From& from, Function* next, const DevicePointer* to,
                       const DevicePointer* sources, const std::size_t* sizes, std::size_t count,
                       More... more, Stream stream) {
    const Kept<BatchPieces> pieces;
    if (to != nullptr && sources != nullptr && sizes != nullptr)
      for (const DevicePointer* const side : {sources, to})
        for (std::size_t i = 0; i < count; ++i) pieces->add(touched(side[i], sizes[i]).first);
    return pass_batch(from.stream(stream), pieces->blocks(),
                      [&] { return next(to, sources, sizes, count, more..., stream); });
  }
};
struct Batch : BatchOf<Word, Word, Word> {};
struct BatchWithIndex : BatchOf<Word, Word, Word, Word> {};

/// `more`: flags, and for the first version the index of the copy that failed.
template <class... More>
struct Batch3DOf {
  using Function = Result(std::size_t, const BatchCopy*, More..., Stream);
  static Result handle(const From& from, Function* next, std::size_t count, const BatchCopy* copies,
                       More... more, Stream stream) {
    const Kept<BatchPieces> pieces;
    for (std::size_t i = 0; copies != nullptr && i < count; ++i) {
      const Sides sides = touched(copies[i], element_bytes(copies[i]));
      for (const std::size_t side : {0, 1}) pieces->add(sides[side], side);
    }
    return pass_batch(from.stream(stream), pieces->blocks(),
                      [&] { return next(count, copies, more..., stream); });
  }
};
struct Batch3D : Batch3DOf<Word> {};
struct Batch3DWithIndex : Batch3DOf<Word, Word> {};

struct WithAttributes {
  using Function = Result(DevicePointer, DevicePointer, std::size_t, const void*, Stream);
  static Result handle(const From& from, Function* next, DevicePointer to, DevicePointer source,
                       std::size_t bytes, const void* attributes, Stream stream) {
    const Kept<Sides> sides(Sides{touched(source, bytes), touched(to, bytes)});
    return pass_batch(from.stream(stream), *sides,
                      [&] { return next(to, source, bytes, attributes, stream); });
  }
};
struct WithAttributes3D {
  using Function = Result(const BatchCopy*, unsigned long long, Stream);
  static Result handle(const From& from, Function* next, const BatchCopy* shape, unsigned long long flags,
                       Stream stream) {
    const Kept<Sides> sides(shape != nullptr ? touched(*shape, element_bytes(*shape)) : Sides{});
    return pass_batch(from.stream(stream), *sides, [&] { return next(shape, flags, stream); });
  }
};

// ---- memory that is set ----

template <unsigned element>
struct Set {
  using Function = Result(DevicePointer, unsigned, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer memory, unsigned value,
                       std::size_t count) {
    return pass_in(from.default_stream, Returns::at_once,
                   {touched(Setting{memory, 0, value, element, count, 1})},
                   [&] { return next(memory, value, count); });
  }
};
template <unsigned element>
struct SetAsync {
  using Function = Result(DevicePointer, unsigned, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer memory, unsigned value,
                       std::size_t count, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once,
                   {touched(Setting{memory, 0, value, element, count, 1})},
                   [&] { return next(memory, value, count, stream); });
  }
};
template <unsigned element>
struct SetRows {
  using Function = Result(DevicePointer, std::size_t, unsigned, std::size_t, std::size_t);
  static Result handle(const From& from, Function* next, DevicePointer memory, std::size_t pitch,
                       unsigned value, std::size_t width, std::size_t height) {
    return pass_in(from.default_stream, Returns::at_once,
                   {touched(Setting{memory, pitch, value, element, width, height})},
                   [&] { return next(memory, pitch, value, width, height); });
  }
};
template <unsigned element>
struct SetRowsAsync {
  using Function = Result(DevicePointer, std::size_t, unsigned, std::size_t, std::size_t, Stream);
  static Result handle(const From& from, Function* next, DevicePointer memory, std::size_t pitch,
                       unsigned value, std::size_t width, std::size_t height, Stream stream) {
    return pass_in(from.stream(stream), Returns::at_once,
                   {touched(Setting{memory, pitch, value, element, width, height})},
                   [&] { return next(memory, pitch, value, width, height, stream); });
  }
};

// ---- nodes of graphs: their parameters are the argument at `place` of `count` ----

inline Sides touched_by(const Copy3D& copy) { return touched(copy); }
inline Sides touched_by(const Setting& setting) { return {touched(setting)}; }
inline Sides touched_by(const NodeParameters& node) {
  if (node.type == kCopyNode) return touched(node.copy.copy);
  return node.type == kSettingNode ? touched_by(node.setting) : Sides{};
}

template <class Parameters, std::size_t place, std::size_t count>
struct Node {
  using Function = FunctionOfWords<count>;
  template <class... A>
  static Result handle(const From&, Function* next, A... arguments) {
    const Word words[] = {arguments...};
    const auto* const parameters = reinterpret_cast<const Parameters*>(words[place]);
    const Kept<Sides> sides(parameters != nullptr ? of_host(touched_by(*parameters)) : Sides{});
    return pass_for_good(*sides, [&] { return next(arguments...); });
  }
};
template <std::size_t place, std::size_t count>
struct GraphCopy : Node<Copy3D, place, count> {};
template <std::size_t place, std::size_t count>
struct GraphSet : Node<Setting, place, count> {};
template <std::size_t place, std::size_t count>
struct GraphNode : Node<NodeParameters, place, count> {};

}  // namespace pinion::cuda
