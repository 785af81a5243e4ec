// Finds whether work of other threads runs in the middle of a copy: a kernel that looks at five words of the
// copy's target, launched all the time, sees old and new bytes side by side if it does.
#include <algorithm>
#include <cstring>
#include <thread>

#include "facts.h"

namespace pinion::gpu {
namespace {

enum class Looker { kSameStream, kLegacyAndLegacy, kLegacyAndBlocking, kOtherStream };

const char* looker_name(Looker looker) {
  switch (looker) {
    case Looker::kSameStream:
      return "kernels of the copy's own stream";
    case Looker::kLegacyAndLegacy:
      return "kernels of the legacy stream beside copies in it";
    case Looker::kLegacyAndBlocking:
      return "kernels of a blocking stream beside copies in the legacy stream";
    case Looker::kOtherStream:
      return "kernels of an unrelated stream";
  }
  return "";
}

enum class Way { kPageableAsync, kPageableSync, kRegisteredAsync };

const char* way_name(Way way) {
  return way == Way::kPageableAsync  ? "pageable async"
         : way == Way::kPageableSync ? "pageable sync"
                                     : "registered async";
}

/// The kernels' log: five words a look.
class Log {
 public:
  static constexpr int kLooks = 1 << 20;
  Log() {
    void* memory = nullptr;
    must(driver().allocate_host(&memory, std::size_t{kLooks} * 32, kPortable | kDeviceMap), "cuMemHostAlloc");
    std::memset(memory, 0, std::size_t{kLooks} * 32);
    words_ = static_cast<std::uint32_t*>(memory);
  }
  DevicePointer slot(int look) const { return reinterpret_cast<DevicePointer>(words_ + look * 8); }
  std::string text(int look) const {
    const std::uint32_t* const seen = words_ + look * 8;
    return format("%u %u %u %u %u", seen[0], seen[1], seen[2], seen[3], seen[4]);
  }
  bool mixed(int look) const {
    const std::uint32_t* const seen = words_ + look * 8;
    for (int i = 1; i < 5; ++i) {
      if (seen[i] != seen[0]) return true;
    }
    return false;
  }

 private:
  std::uint32_t* words_;
};

Result look_at(Session& session, DevicePointer device, std::uint64_t bytes, DevicePointer slot,
               Stream stream) {
  std::uint64_t quarter = bytes / 4;
  void* arguments[] = {&device, &quarter, &slot};
  return driver().launch(session.kernels.look, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr);
}

void atomicity(Looker looker, Way way, std::size_t bytes) {
  Session session;
  Log log;
  DevicePointer device = 0;
  must(driver().allocate(&device, bytes), "cuMemAlloc");
  must(driver().set_bytes(device, 0, bytes), "cuMemsetD8");
  Stream copies = session.stream, looks = session.stream;
  if (looker == Looker::kOtherStream) must(driver().stream_create(&looks, kNonBlocking), "cuStreamCreate");
  if (looker == Looker::kLegacyAndLegacy || looker == Looker::kLegacyAndBlocking ||
      way == Way::kPageableSync) {
    copies = looks = kLegacyStream;
  }
  if (looker == Looker::kLegacyAndBlocking) must(driver().stream_create(&looks, 0), "cuStreamCreate");
  char* const host[2] = {map_memory(bytes), map_memory(bytes)};
  for (int i = 0; i < 2; ++i) {
    fill(host[i], bytes, 1 + i, 4);
    if (way == Way::kRegisteredAsync) must(driver().host_register(host[i], bytes, 0), "cuMemHostRegister");
  }
  must(driver().context_synchronize(), "cuCtxSynchronize");
  std::atomic<bool> stop{false};
  std::atomic<int> made{0};
  const auto launch = [&] {
    driver().context_set(session.context);
    for (int look; !stop && (look = made++) < Log::kLooks;) {
      must(look_at(session, device, bytes, log.slot(look), looks), "cuLaunchKernel");
      if (look % 16 == 15) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  };
  std::vector<std::thread> launchers;
  for (int i = 0; i < 4; ++i) launchers.emplace_back(launch);
  int copied = 0;
  for (const double end = now() + 8e5; now() < end; ++copied) {
    must(way == Way::kPageableSync ? driver().copy_in(device, host[copied % 2], bytes)
                                   : driver().copy_in_async(device, host[copied % 2], bytes, copies),
         "the copy");
    // The pause lets the launchers reach the driver's lock, which is unfair.
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  stop = true;
  for (std::thread& launcher : launchers) launcher.join();
  must(driver().context_synchronize(), "cuCtxSynchronize");
  int mixed = 0;
  const int looked = std::min<int>(made, Log::kLooks);
  for (int i = 0; i < looked; ++i) mixed += log.mixed(i);
  emit(format("%s see a %s copy of %s half done", looker_name(looker), way_name(way),
              size_name(bytes).c_str()),
       format("%d of %d", mixed, looked), "looks", format("%d copies", copied));
}

/// A kernel launched in a copy's own stream while the copy waits in the driver behind a gate.
void launch_while_copy_waits(std::size_t bytes) {
  Session session;
  Log log;
  Gate gate(GateKind::kValue);
  DevicePointer device = 0;
  must(driver().allocate(&device, bytes), "cuMemAlloc");
  must(driver().set_bytes(device, 0, bytes), "cuMemsetD8");
  must(driver().context_synchronize(), "cuCtxSynchronize");
  char* const host = map_memory(bytes);
  fill(host, bytes, 1, 4);
  gate.close(session.stream, session.kernels);
  std::thread copying([&] {
    driver().context_set(session.context);
    must(driver().copy_in_async(device, host, bytes, session.stream), "cuMemcpyHtoDAsync");
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const Step outcome = step(session.context, gate,
                            [&] { return look_at(session, device, bytes, log.slot(0), session.stream); });
  gate.open();
  copying.join();
  must(driver().context_synchronize(), "cuCtxSynchronize");
  emit(format("launch in the stream of a pageable copy of %s that waits", size_name(bytes).c_str()),
       outcome.text() + "; the kernel saw " + log.text(0), "", "0: before the copy; 1: after it");
}

}  // namespace

void add_atomic(Experiments& all) {
  for (const std::size_t bytes : {kMiB, 64 * kMiB}) {
    all.push_back({"atomic", 6, [=] { launch_while_copy_waits(bytes); }});
    all.push_back({"atomic", 8, [=] { atomicity(Looker::kSameStream, Way::kPageableAsync, bytes); }});
    all.push_back({"atomic", 8, [=] { atomicity(Looker::kLegacyAndLegacy, Way::kPageableSync, bytes); }});
    all.push_back({"atomic", 8, [=] { atomicity(Looker::kLegacyAndBlocking, Way::kPageableSync, bytes); }});
    all.push_back({"atomic", 8, [=] { atomicity(Looker::kOtherStream, Way::kPageableAsync, bytes); }});
    all.push_back({"atomic", 8, [=] { atomicity(Looker::kSameStream, Way::kRegisteredAsync, bytes); }});
  }
}

}  // namespace pinion::gpu
