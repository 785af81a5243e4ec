// Finds how the driver treats a copy whose host range is registered in part: as pinned, as pageable, or as an
// error.
#include "facts.h"

namespace pinion::gpu {
namespace {

enum class Cover { kNone, kWhole, kSecondHalf, kFirstHalf, kMiddle, kTwoPieces };

const char* cover_name(Cover cover) {
  switch (cover) {
    case Cover::kNone:
      return "nothing registered";
    case Cover::kWhole:
      return "whole range registered";
    case Cover::kSecondHalf:
      return "starts outside, ends inside";
    case Cover::kFirstHalf:
      return "starts inside, ends outside";
    case Cover::kMiddle:
      return "covers a whole registration";
    case Cover::kTwoPieces:
      return "crosses the border of two adjacent registrations";
  }
  return "";
}

enum class Call { kSync, kAsync, k2D, k2DAsync };

const char* call_name(Call call) {
  switch (call) {
    case Call::kSync:
      return "sync";
    case Call::kAsync:
      return "async";
    case Call::k2D:
      return "2D sync";
    case Call::k2DAsync:
      return "2D async";
  }
  return "";
}

/// A host range of some bytes, with room around it, registered as the cover says.
class Range {
 public:
  Range(std::size_t bytes, Cover cover) : bytes_(bytes), all_(map_memory(4 * bytes)), start_(all_ + bytes) {
    fill(all_, 4 * bytes, 1);
    const std::size_t half = bytes / 2;
    if (cover == Cover::kWhole) add(start_ - half, 2 * bytes);
    if (cover == Cover::kSecondHalf) add(start_ + half, bytes);
    if (cover == Cover::kFirstHalf) add(start_ - half, bytes);
    if (cover == Cover::kMiddle) add(start_ + bytes / 4, half);
    if (cover == Cover::kTwoPieces) {
      add(start_ - half, bytes);
      add(start_ + half, bytes);
    }
  }
  ~Range() {
    for (char* piece : pieces_) driver().host_unregister(piece);
    unmap_memory(all_, 4 * bytes_);
  }
  char* start() const { return start_; }

 private:
  void add(char* place, std::size_t bytes) {
    must(driver().host_register(place, bytes, kPortable), "cuMemHostRegister");
    pieces_.push_back(place);
  }
  std::size_t bytes_;
  char *all_, *start_;
  std::vector<char*> pieces_;
};

/// A copy of the range, in rows of 4 KiB that follow each other where it is 2D.
Result copy(Call call, bool in, char* host, DevicePointer device, std::size_t bytes, Stream stream) {
  if (call == Call::kSync)
    return in ? driver().copy_in(device, host, bytes) : driver().copy_out(host, device, bytes);
  if (call == Call::kAsync) {
    return in ? driver().copy_in_async(device, host, bytes, stream)
              : driver().copy_out_async(host, device, bytes, stream);
  }
  Copy2D shape;
  shape.source_type = in ? kMemoryTypeHost : kMemoryTypeDevice;
  shape.target_type = in ? kMemoryTypeDevice : kMemoryTypeHost;
  if (in) {
    shape.source_host = host;
    shape.target_device = device;
  } else {
    shape.source_device = device;
    shape.target_host = host;
  }
  shape.source_pitch = shape.target_pitch = shape.width = 4096;
  shape.height = bytes / 4096;
  return call == Call::k2D ? driver().copy_2d(&shape) : driver().copy_2d_async(&shape, stream);
}

std::string one_case(Session& session, Gate& gate, DevicePointer device, std::size_t bytes, Cover cover,
                     Call call, bool in) {
  Range range(bytes, cover);
  char* const host = range.start();
  const bool async = call == Call::kAsync || call == Call::k2DAsync;
  // The GPU holds 3 everywhere before the copy.
  {
    Range threes(bytes, Cover::kNone);
    fill(threes.start(), bytes, 3);
    must(driver().copy_in(device, threes.start(), bytes), "cuMemcpyHtoD");
    must(driver().context_synchronize(), "cuCtxSynchronize");
  }
  if (async) gate.close(session.stream, session.kernels);
  const Step outcome = step(
      session.context, gate, [&] { return copy(call, in, host, device, bytes, session.stream); }, 100);
  const std::string then = contents(host, bytes);
  if (in && async && outcome.at_once) fill(host, bytes, 2);
  gate.open();
  const Result result = driver().context_synchronize();
  if (outcome.result != kSuccess || result != kSuccess) {
    return result_name(outcome.result) + (result == kSuccess ? "" : ", synchronize: " + result_name(result));
  }
  const std::string seen = in ? device_contents(device, bytes) : contents(host, bytes);
  if (!async) return seen == (in ? "1" : "3") ? "ok, right bytes" : "ok, WRONG bytes: " + seen;
  if (!in) {
    if (seen != "3") return "WRONG bytes: " + seen;
    return outcome.at_once
               ? (then == "1" ? "pinned: returns before the bytes arrive" : "returns with the bytes")
               : "pageable: waits for the stream, right bytes";
  }
  if (!outcome.at_once)
    return seen == "1" ? "pageable: waits for the stream, right bytes" : "WRONG bytes: " + seen;
  if (seen == "1") return "pageable: read by the call";
  return seen == "2" ? "pinned: read in stream order" : "CUT: partly read by the call, " + seen;
}

void partly(Cover cover) {
  Session session;
  Gate gate(GateKind::kValue);
  DevicePointer device = 0;
  must(driver().allocate(&device, 64 * kMiB), "cuMemAlloc");
  for (const bool in : {true, false}) {
    for (const Call call : {Call::kSync, Call::kAsync, Call::k2D, Call::k2DAsync}) {
      for (const std::size_t bytes : {64 * kKiB, kMiB, 16 * kMiB}) {
        emit(format("%s, %s %s, %s", cover_name(cover), in ? "to the GPU" : "from the GPU", call_name(call),
                    size_name(bytes).c_str()),
             one_case(session, gate, device, bytes, cover, call, in));
      }
    }
  }
}

}  // namespace

void add_partly(Experiments& all) {
  for (const Cover cover : {Cover::kNone, Cover::kWhole, Cover::kSecondHalf, Cover::kFirstHalf,
                            Cover::kMiddle, Cover::kTwoPieces}) {
    all.push_back({"partly", 12, [=] { partly(cover); }});
  }
}

}  // namespace pinion::gpu
