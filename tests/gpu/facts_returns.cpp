// Finds when copies of pageable memory return behind a gated stream, by size, and whether their source has
// been read by then.
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

constexpr std::size_t kMost = 64 * kMiB;

enum class Kind {
  kAsync,
  kLegacy,
  kPerThread,
  k2D,
  kBatchStream,
  kBatchDuringCall,
  kBatchAny,
  kSync,
  kOut,
  kOut2D
};

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kAsync:
      return "copy to the GPU, async";
    case Kind::kLegacy:
      return "copy to the GPU, async, legacy stream";
    case Kind::kPerThread:
      return "copy to the GPU, async, per-thread stream";
    case Kind::k2D:
      return "copy to the GPU, 2D async";
    case Kind::kBatchStream:
      return "copy to the GPU, batch, access order stream";
    case Kind::kBatchDuringCall:
      return "copy to the GPU, batch, access order during call";
    case Kind::kBatchAny:
      return "copy to the GPU, batch, access order any";
    case Kind::kSync:
      return "copy to the GPU, sync";
    case Kind::kOut:
      return "copy from the GPU, async";
    case Kind::kOut2D:
      return "copy from the GPU, 2D async";
  }
  return "";
}

/// Copies between pageable memory and the GPU, behind a gate.
class Copies {
 public:
  explicit Copies(Kind kind) : gate_(GateKind::kValue), kind_(kind) {
    // A 2D copy takes every second row of 4 KiB.
    host_ = map_memory(2 * kMost);
    fill(host_, 2 * kMost, 1, 4);
    must(driver().allocate(&device_, kMost), "cuMemAlloc");
    stream_ = session_.stream;
    gated_ = stream_;
    if (kind == Kind::kLegacy) stream_ = gated_ = kLegacyStream;
    if (kind == Kind::kSync) gated_ = kLegacyStream;
    batch_ = kind == Kind::kBatchStream || kind == Kind::kBatchDuringCall || kind == Kind::kBatchAny;
  }
  bool possible() const { return !batch_ || driver().copy_batch_v2 || driver().copy_batch_v1; }
  /// Makes a copy behind the closed gate. Whether it returned at once; what the GPU then holds, if asked.
  Step probe(std::size_t bytes, std::string* seen) {
    const std::size_t touched = kind_ == Kind::k2D ? 2 * bytes : bytes;
    if (seen) fill(host_, touched, 1);
    if (kind_ != Kind::kPerThread) gate_.close(gated_, session_.kernels);
    const Step outcome = step(
        session_.context, gate_, [this, bytes] { return copy(bytes); }, 60);
    if (outcome.at_once && seen) fill(host_, touched, 2);
    gate_.open();
    must(driver().context_synchronize(), "cuCtxSynchronize");
    if (seen) *seen = device_contents(device_, bytes);
    return outcome;
  }

 private:
  Result copy(std::size_t bytes) {
    // Each thread has its own per-thread stream, so the gate is closed in the copying thread.
    if (kind_ == Kind::kPerThread) gate_.close(kThreadStream, session_.kernels);
    const Stream stream = kind_ == Kind::kPerThread ? kThreadStream : stream_;
    if (batch_) return copy_batch(bytes);
    if (kind_ == Kind::k2D || kind_ == Kind::kOut2D) return copy_2d(bytes);
    if (kind_ == Kind::kSync) return driver().copy_in(device_, host_, bytes);
    if (kind_ == Kind::kOut) return driver().copy_out_async(host_, device_, bytes, stream);
    return driver().copy_in_async(device_, host_, bytes, stream);
  }
  Result copy_2d(std::size_t bytes) {
    constexpr std::size_t kRow = 4096;
    Copy2D shape;
    if (kind_ == Kind::k2D) {
      shape.source_type = kMemoryTypeHost;
      shape.source_host = host_;
      shape.source_pitch = 2 * kRow;
      shape.target_type = kMemoryTypeDevice;
      shape.target_device = device_;
      shape.target_pitch = kRow;
    } else {
      shape.source_type = kMemoryTypeDevice;
      shape.source_device = device_;
      shape.source_pitch = kRow;
      shape.target_type = kMemoryTypeHost;
      shape.target_host = host_;
      shape.target_pitch = 2 * kRow;
    }
    shape.width = kRow;
    shape.height = bytes / kRow;
    return driver().copy_2d_async(&shape, stream_);
  }
  Result copy_batch(std::size_t bytes) {
    DevicePointer to = device_, from = reinterpret_cast<DevicePointer>(host_);
    std::size_t size = bytes, first = 0, failed = 0;
    CopyAttributes attributes;
    attributes.source_access_order = kind_ == Kind::kBatchStream       ? 1
                                     : kind_ == Kind::kBatchDuringCall ? 2
                                                                       : 3;
    if (driver().copy_batch_v2) {
      return driver().copy_batch_v2(&to, &from, &size, 1, &attributes, &first, 1, stream_);
    }
    return driver().copy_batch_v1(&to, &from, &size, 1, &attributes, &first, 1, &failed, stream_);
  }
  Session session_;
  Gate gate_;
  Kind kind_;
  bool batch_ = false;
  char* host_ = nullptr;
  DevicePointer device_ = 0;
  Stream stream_ = nullptr, gated_ = nullptr;
};

/// Finds the largest size that returns at once, to the byte (2D: to the row).
void find_limit(Copies& copies, Kind kind) {
  const bool rows = kind == Kind::k2D || kind == Kind::kOut2D;
  std::size_t low = rows ? 4096 : 4, high = kMost;
  const std::string name = kind_name(kind);
  if (!copies.probe(low, nullptr).at_once)
    return emit(name, "waits at every size", "", "from " + size_name(low));
  if (copies.probe(high, nullptr).at_once)
    return emit(name, "returns at once at every size", "", "to 64 MiB");
  const std::size_t grain = rows ? 4096 : 4;
  while (high - low > grain) {
    const std::size_t middle = (low + high) / 2 / grain * grain;
    (copies.probe(middle, nullptr).at_once ? low : high) = middle;
  }
  emit(name, format("returns at once up to %zu", low), "bytes",
       "bisected; waits for the gate from the next size on");
}

void returns_of(Kind kind) {
  Copies copies(kind);
  if (!copies.possible()) return emit(kind_name(kind), "this driver has no such call");
  copies.probe(64 * kKiB, nullptr);
  for (const std::size_t bytes : {4 * kKiB, 64 * kKiB, kMiB, 2 * kMiB, 3 * kMiB, 64 * kMiB}) {
    std::string seen;
    const Step outcome = copies.probe(bytes, &seen);
    const char* const how =
        "behind a gated stream; the source is overwritten with 2 if the call returned at once";
    if (kind == Kind::kOut || kind == Kind::kOut2D) {
      emit(format("%s, %s", kind_name(kind), size_name(bytes).c_str()), outcome.text(), "",
           "behind a gated stream");
    } else {
      emit(format("%s, %s", kind_name(kind), size_name(bytes).c_str()),
           outcome.text() + "; the GPU holds " + (seen == "1" ? "the old bytes" : seen), "", how);
    }
  }
  find_limit(copies, kind);
}

/// Counts calls behind a gate until one waits, or 3000.
void pending_calls(std::size_t bytes) {
  constexpr int kLimit = 3000;
  Session session;
  Gate gate(GateKind::kValue);
  char* const host = map_memory(kMiB);
  fill(host, kMiB, 1);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMiB), "cuMemAlloc");
  std::atomic<int> made{0};
  std::atomic<bool> stop{false}, ended{false};
  gate.close(session.stream, session.kernels);
  std::thread caller([&] {
    driver().context_set(session.context);
    Result result = kSuccess;
    for (; made < kLimit && result == kSuccess && !stop; ++made) {
      result = bytes == 0 ? driver().launch(session.kernels.nothing, 1, 1, 1, 1, 1, 1, 0, session.stream,
                                            nullptr, nullptr)
                          : driver().copy_in_async(device, host, bytes, session.stream);
    }
    ended = true;
  });
  // The caller waits once its count stands still.
  for (int last = -1; !ended && made != last;) {
    last = made;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  const int count = made;
  stop = true;
  gate.open();
  caller.join();
  must(driver().context_synchronize(), "cuCtxSynchronize");
  emit(bytes ? "pageable copies of " + size_name(bytes) + " before a call waits"
             : "kernel launches before a call waits",
       count >= kLimit ? "more than 3000" : format("%d", count), "calls", "behind a gated stream");
}

/// Overwrites the source right after an async copy on an idle stream has returned.
void overwrite_after_return(bool registered) {
  Session session;
  char* const host = map_memory(kMost);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  fill(host, kMost, 1);
  if (registered) must(driver().host_register(host, kMost, 0), "cuMemHostRegister");
  for (const std::size_t bytes : {64 * kKiB, kMiB, 2 * kMiB, 4 * kMiB, 16 * kMiB, 64 * kMiB}) {
    int old = 0, tries = 20;
    for (int i = 0; i < tries; ++i) {
      fill(host, bytes, 1);
      must(driver().copy_in_async(device, host, bytes, session.stream), "cuMemcpyHtoDAsync");
      fill(host, bytes, 2);
      must(driver().stream_synchronize(session.stream), "cuStreamSynchronize");
      old += device_contents(device, bytes) == "1";
    }
    emit(format("overwritten after return, %s, %s", registered ? "registered" : "pageable",
                size_name(bytes).c_str()),
         format("%d of %d", old, tries), "copies hold the old bytes",
         "async copy to the GPU on an idle stream");
  }
}

/// Repeats it for a batch of so many copies, by its access order, on an idle stream.
void batch_overwritten_after_return(int order, std::size_t count) {
  Session session;
  if (!driver().copy_batch_v2)
    return emit("batch", "this driver has no second version of cuMemcpyBatchAsync");
  char* const host = map_memory(kMost);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  for (const std::size_t bytes : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}) {
    int old = 0, tries = 20;
    Times call;
    for (int i = 0; i < tries; ++i) {
      fill(host, bytes, 1);
      std::vector<DevicePointer> to, from;
      std::vector<std::size_t> sizes;
      for (std::size_t part = 0; part < count; ++part) {
        to.push_back(device + bytes / count * part);
        from.push_back(reinterpret_cast<DevicePointer>(host) + bytes / count * part);
        sizes.push_back(bytes / count);
      }
      CopyAttributes attributes;
      attributes.source_access_order = order;
      std::size_t first = 0;
      const double began = now();
      must(driver().copy_batch_v2(to.data(), from.data(), sizes.data(), count, &attributes, &first, 1,
                                  session.stream),
           "cuMemcpyBatchAsync");
      call.add(now() - began);
      fill(host, bytes, 2);
      must(driver().stream_synchronize(session.stream), "cuStreamSynchronize");
      old += device_contents(device, bytes) == "1";
    }
    emit(format("overwritten after return, batch of %zu, access order %s, %s", count,
                order == 1   ? "stream"
                : order == 2 ? "during call"
                             : "any",
                size_name(bytes).c_str()),
         format("%d of %d", old, tries), "copies hold the old bytes",
         format("pageable, idle stream; call %s us", call.summary().c_str()));
  }
}

/// Asks whether the copy's work is still pending when a sync copy has returned.
void pending_after_sync(bool registered) {
  Session session;
  char* const host = map_memory(kMost);
  DevicePointer device = 0;
  must(driver().allocate(&device, kMost), "cuMemAlloc");
  fill(host, kMost, 1);
  if (registered) must(driver().host_register(host, kMost, 0), "cuMemHostRegister");
  for (const std::size_t bytes : {4 * kKiB, 32 * kKiB, 64 * kKiB, 128 * kKiB, kMiB, 16 * kMiB}) {
    int pending = 0, tries = bytes > kMiB ? 50 : 500;
    Times copy, rest;
    for (int i = 0; i < tries; ++i) {
      const double began = now();
      must(driver().copy_in(device, host, bytes), "cuMemcpyHtoD");
      copy.add(now() - began);
      pending += driver().stream_query(kLegacyStream) == kNotReady;
      const double returned = now();
      must(driver().stream_synchronize(kLegacyStream), "cuStreamSynchronize");
      rest.add(now() - returned);
    }
    emit(format("work pending after a sync copy, %s, %s", registered ? "registered" : "pageable",
                size_name(bytes).c_str()),
         format("%d of %d", pending, tries), "copies",
         format("call %s us, a synchronize after it %s us", copy.summary().c_str(), rest.summary().c_str()));
  }
}

}  // namespace

void add_returns(Experiments& all) {
  for (const Kind kind : {Kind::kAsync, Kind::kLegacy, Kind::kPerThread, Kind::k2D, Kind::kBatchStream,
                          Kind::kBatchDuringCall, Kind::kBatchAny, Kind::kSync, Kind::kOut, Kind::kOut2D}) {
    all.push_back({"returns", 14, [=] { returns_of(kind); }});
  }
  for (const std::size_t bytes : {std::size_t{0}, 4 * kKiB, 64 * kKiB, kMiB}) {
    all.push_back({"returns", 8, [=] { pending_calls(bytes); }});
  }
  for (const int order : {1, 2, 3}) {
    for (const std::size_t count : {1, 4}) {
      all.push_back({"returns.batch", 8, [=] { batch_overwritten_after_return(order, count); }});
    }
  }
  for (const bool registered : {false, true}) {
    all.push_back({"returns", 12, [=] { overwrite_after_return(registered); }});
    all.push_back({"returns", 8, [=] { pending_after_sync(registered); }});
  }
}

}  // namespace pinion::gpu
