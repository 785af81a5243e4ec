// Staged copies against the made-up CUDA driver: contents, order, errors, and what they must not disturb.
#include "intercept/cuda/staged_copy.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/range.h"
#include "intercept/cuda/staging_figures.h"
#include "intercept/cuda/submission_gate.h"
#include "lease/copy_counters.h"
#include "support/deterministic_scheduler.h"
#include "support/eventually.h"
#include "support/in_child.h"
#include "support/made_up_cuda/made_up_cuda.h"

namespace pinion::cuda {
namespace {

using namespace staging;

const made_up_cuda::Library& made_up() {
  static const made_up_cuda::Library opened = made_up_cuda::open(PINION_TEST_CUDA);
  return opened;
}
template <class Function>
Function* call(const char* symbol) {
  return reinterpret_cast<Function*>(::dlsym(made_up().library, symbol));
}
const Driver& driver() {
  static const Driver found = [] {
    Driver made;
    EXPECT_EQ(fill(made, [](const char* symbol) { return ::dlsym(made_up().library, symbol); }), nullptr);
    return made;
  }();
  return found;
}
Result set_context(Context context) { return call<Result(Context)>("cuCtxSetCurrent")(context); }

/// Memory of the program, on pages of its own.
class Memory {
 public:
  explicit Memory(std::size_t bytes, char value = 0) : bytes_(bytes) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    data_ = static_cast<char*>(mapped);
    std::memset(data_, value, bytes);
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  std::size_t bytes_;
  char* data_;
};

void write_pattern(char* to, std::size_t bytes, unsigned seed) {
  std::minstd_rand random(seed + 1);
  for (std::size_t at = 0; at < bytes; at += 64) {
    const auto value = static_cast<unsigned>(random());
    for (std::size_t i = at; i < std::min(bytes, at + 64); ++i) to[i] = static_cast<char>(value + i);
  }
}

class Staged : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(call<Result(unsigned)>("cuInit")(0), kSuccess);
    made_up().madeUpSetLongestWait(60000);
    ASSERT_EQ(driver().context_create(&context_, 0, 0), kSuccess);
    stream_ = make_stream(0);
    device_ = allocate(kDeviceBytes);
    // Made before tests count calls.
    warm_up();
  }
  void TearDown() override {
    made_up().madeUpAtCall(nullptr);
    made_up().madeUpDelayWork(0);
    if (context_ != nullptr) end_context();
  }
  void end_context() {
    unsigned long long id = 0;
    driver().context_id(context_, &id);
    staging_contexts_changed(id);
    EXPECT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(context_), kSuccess);
    context_ = nullptr;
  }
  void warm_up() {
    const Memory host(kMiB);
    ASSERT_EQ(stage(to(host.data(), kMiB)), kSuccess);
  }
  static Stream make_stream(unsigned flags) {
    Stream stream = nullptr;
    EXPECT_EQ(call<Result(Stream*, unsigned)>("cuStreamCreate")(&stream, flags), kSuccess);
    return stream;
  }
  static DevicePointer allocate(std::size_t bytes) {
    DevicePointer device = 0;
    EXPECT_EQ(call<Result(DevicePointer*, std::size_t)>("cuMemAlloc_v2")(&device, bytes), kSuccess);
    return device;
  }
  static char* bytes_of(DevicePointer device) {
    return static_cast<char*>(made_up().madeUpDeviceBytes(device));
  }
  LinearCopy to(void* host, std::size_t bytes, Stream stream = nullptr) const {
    return {Direction::to_device, false, stream == nullptr ? stream_ : stream, device_, host, bytes};
  }
  LinearCopy from(void* host, std::size_t bytes, Stream stream = nullptr) const {
    return {Direction::from_device, false, stream == nullptr ? stream_ : stream, device_, host, bytes};
  }
  /// A staged copy. After contention a few are left to the driver.
  static std::optional<Result> stage(const LinearCopy& copy) {
    std::optional<Result> result;
    for (unsigned i = 0; i <= kMostLeft && !result; ++i) result = staged_copy(driver(), copy);
    return result;
  }
  /// Makes the same copy by the driver.
  static Result plain(const LinearCopy& copy) {
    const SubmissionGate::Entry entry(submission_gate(), copy.stream);
    return copy.direction == Direction::to_device
               ? driver().copy_in_async(copy.device, copy.host, copy.bytes, copy.stream)
               : driver().copy_out_async(copy.host, copy.device, copy.bytes, copy.stream);
  }
  /// Launches a kernel that calls `body(value)`, as the front's wrapper of cuLaunchKernel does.
  static void launch(Stream stream, void (*body)(const unsigned long long*), unsigned long long value) {
    void* const kernel = made_up().madeUpKernel(body, 1);
    using Launch = Result(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,
                          void**, void**);
    void* parameters[] = {&value};
    const SubmissionGate::Entry entry(submission_gate(), stream);
    ASSERT_EQ(call<Launch>("cuLaunchKernel")(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
              kSuccess);
  }
  std::thread in_thread(const std::function<void()>& body) const {
    return std::thread([this, body] {
      set_context(context_);
      body();
    });
  }

  static constexpr std::size_t kDeviceBytes = 80 * kMiB;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  DevicePointer device_ = 0;
};

// ---- contents ----

TEST_F(Staged, EachByteArrivesAndNoOther) {
  Memory host(72 * kMiB);
  for (const Stream stream : {stream_, kLegacyStream, kThreadStream, make_stream(kStreamNonBlocking)}) {
    for (const std::size_t bytes : {kLeastBytes, kMiB - 1, kMiB, 3 * kMiB + 17, 9 * kMiB, 70 * kMiB + 1}) {
      if (bytes > 64 * kMiB && stream != stream_) continue;
      LinearCopy copy = to(host.data() + 13, bytes, stream);
      copy.device += 7;
      write_pattern(host.data(), bytes + 64, static_cast<unsigned>(bytes));
      std::memset(bytes_of(device_), 'x', bytes + 64);
      ASSERT_EQ(stage(copy), kSuccess) << bytes;
      EXPECT_EQ(bytes_of(device_)[6], 'x');
      EXPECT_EQ(std::memcmp(bytes_of(device_) + 7, host.data() + 13, bytes), 0) << bytes;
      EXPECT_EQ(bytes_of(device_)[7 + bytes], 'x');

      write_pattern(bytes_of(device_), bytes + 64, static_cast<unsigned>(bytes) + 1);
      std::memset(host.data(), 'y', bytes + 64);
      copy.direction = Direction::from_device;
      ASSERT_EQ(stage(copy), kSuccess) << bytes;
      EXPECT_EQ(host.data()[12], 'y');
      EXPECT_EQ(std::memcmp(bytes_of(device_) + 7, host.data() + 13, bytes), 0) << bytes;
      EXPECT_EQ(host.data()[13 + bytes], 'y');
    }
  }
}

TEST_F(Staged, ASlowEngineNeverFindsASlotThatWasFilledTooEarly) {
  made_up().madeUpDelayWork(300);
  const Memory host(72 * kMiB), back(72 * kMiB);
  write_pattern(host.data(), 70 * kMiB, 5);
  ASSERT_EQ(stage(to(host.data(), 70 * kMiB)), kSuccess);
  EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), 70 * kMiB), 0);
  ASSERT_EQ(stage(from(back.data(), 70 * kMiB)), kSuccess);
  EXPECT_EQ(std::memcmp(back.data(), host.data(), 70 * kMiB), 0);
}

TEST_F(Staged, CopiesAreCountedByBytes) {
  const Memory host(4 * kMiB);
  runlog::Counters before{}, after{};
  copy_counters().add_to(before);
  ASSERT_EQ(stage(to(host.data(), 4 * kMiB)), kSuccess);
  ASSERT_EQ(stage(from(host.data(), 3 * kMiB)), kSuccess);
  copy_counters().add_to(after);
  const auto way = static_cast<unsigned>(runlog::CopyWay::staged);
  EXPECT_EQ(after.copies_to_gpu[way].bytes - before.copies_to_gpu[way].bytes, 4 * kMiB);
  EXPECT_EQ(after.copies_from_gpu[way].bytes - before.copies_from_gpu[way].bytes, 3 * kMiB);
  EXPECT_EQ(after.copies_from_gpu[way].count - before.copies_from_gpu[way].count, 1u);
}

thread_local bool t_is_programs = false;
std::atomic<unsigned> g_faults{0}, g_faults_elsewhere{0};

/// Gives the page back its rights, by what the thread knows, as a collector does.
void handle_fault(int, siginfo_t* info, void*) {
  ++(t_is_programs ? g_faults : g_faults_elsewhere);
  auto* const page = reinterpret_cast<void*>(page_floor(reinterpret_cast<Address>(info->si_addr)));
  ::mprotect(page, page_size(), PROT_READ | PROT_WRITE);
}

TEST_F(Staged, FaultsOfTheProgramsMemoryAreTakenByItsOwnThread) {
  struct sigaction action {
  }, before{};
  action.sa_sigaction = handle_fault;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGSEGV, &action, &before), 0);
  t_is_programs = true;
  constexpr std::size_t kBytes = 16 * kMiB;
  const Memory host(kBytes);
  write_pattern(host.data(), kBytes, 3);
  ASSERT_EQ(::mprotect(host.data(), kBytes, PROT_NONE), 0);
  EXPECT_EQ(stage(to(host.data(), kBytes)), kSuccess);
  EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), kBytes), 0);
  EXPECT_EQ(g_faults, kBytes / page_size());

  write_pattern(bytes_of(device_), kBytes, 4);
  ASSERT_EQ(::mprotect(host.data(), kBytes, PROT_READ), 0);
  EXPECT_EQ(stage(from(host.data(), kBytes)), kSuccess);
  EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), kBytes), 0);
  EXPECT_EQ(g_faults, 2 * kBytes / page_size());
  EXPECT_EQ(g_faults_elsewhere, 0u);
  ::sigaction(SIGSEGV, &before, nullptr);
}

// ---- what is not staged ----

TEST_F(Staged, WhatIsInDoubtIsLeftToTheDriver) {
  const Memory host(4 * kMiB);
  const Memory pinned(4 * kMiB);
  ASSERT_EQ(driver().host_register(pinned.data(), 4 * kMiB, 0), kSuccess);
  Context other = nullptr;
  ASSERT_EQ(driver().context_create(&other, 0, 0), kSuccess);
  const Stream elsewhere = make_stream(0);
  ASSERT_EQ(set_context(context_), kSuccess);
  LinearCopy over = to(host.data(), 2 * kMiB);
  over.device = device_ + kDeviceBytes - kMiB;
  LinearCopy wild = to(host.data(), 2 * kMiB);
  wild.device = 0x1000;
  const auto copies = made_up().madeUpCalls("cuMemcpyHtoDAsync_v2");
  const auto records = made_up().madeUpCalls("cuEventRecord");
  for (const LinearCopy& copy : {to(host.data(), kLeastBytes - 1), to(pinned.data(), 2 * kMiB), over, wild,
                                 to(host.data(), 2 * kMiB, elsewhere)})
    EXPECT_FALSE(staged_copy(driver(), copy));
  std::thread([&] { EXPECT_FALSE(staged_copy(driver(), to(host.data(), 2 * kMiB))); }).join();
  EXPECT_EQ(made_up().madeUpCalls("cuMemcpyHtoDAsync_v2"), copies);
  EXPECT_EQ(made_up().madeUpCalls("cuEventRecord"), records);
  EXPECT_EQ(driver().host_unregister(pinned.data()), kSuccess);
  EXPECT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(other), kSuccess);
}

TEST_F(Staged, AStreamThatCapturesIsLeftAlone) {
  const Memory host(4 * kMiB);
  using Begin = Result(Stream, int);
  using End = Result(Stream, void**);
  for (const int mode : {kCaptureGlobal, kCaptureThreadLocal, kCaptureRelaxed}) {
    ASSERT_EQ(call<Begin>("cuStreamBeginCapture_v2")(stream_, mode), kSuccess);
    EXPECT_FALSE(staged_copy(driver(), to(host.data(), 4 * kMiB)));
    EXPECT_FALSE(staged_copy(driver(), to(host.data(), 4 * kMiB, kLegacyStream)));
    // Another stream's copies go on beside the capture.
    EXPECT_EQ(stage(to(host.data(), 4 * kMiB, make_stream(kStreamNonBlocking))), kSuccess);
    void* graph = nullptr;
    EXPECT_EQ(call<End>("cuStreamEndCapture")(stream_, &graph), kSuccess) << "the capture is lost";
  }
}

TEST_F(Staged, ARingIsMadeBesideACapture) {
  using Begin = Result(Stream, int);
  using End = Result(Stream, void**);
  const Memory host(kMiB);
  staging_contexts_changed(0);
  ASSERT_EQ(call<Begin>("cuStreamBeginCapture_v2")(stream_, kCaptureGlobal), kSuccess);
  EXPECT_EQ(stage(to(host.data(), kMiB, make_stream(kStreamNonBlocking))), kSuccess);
  void* graph = nullptr;
  EXPECT_EQ(call<End>("cuStreamEndCapture")(stream_, &graph), kSuccess) << "the capture is lost";
}

TEST_F(Staged, ACaptureBeginsBeforeACopyOrAfterIt) {
  using Begin = Result(Stream, int);
  using End = Result(Stream, void**);
  const Memory host(8 * kMiB);
  std::atomic<bool> stop{false};
  std::thread capturer = in_thread([&] {
    while (!stop) {
      {
        const SubmissionGate::Entry entry(submission_gate(), stream_);
        ASSERT_EQ(call<Begin>("cuStreamBeginCapture_v2")(stream_, kCaptureThreadLocal), kSuccess);
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      void* graph = nullptr;
      ASSERT_EQ(call<End>("cuStreamEndCapture")(stream_, &graph), kSuccess) << "the capture is lost";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  for (int staged = 0; staged < 20;) {
    // Work of the legacy stream fails while a blocking stream captures.
    const auto result = staged_copy(driver(), to(host.data(), 8 * kMiB, kLegacyStream));
    EXPECT_EQ(result.value_or(kSuccess), kSuccess);
    if (result) ++staged;
  }
  stop = true;
  capturer.join();
}

// ---- streams that wait ----

TEST_F(Staged, ACopyReadsItsSourceWhenItsTurnComes) {
  const Memory host(8 * kMiB, 1);
  ASSERT_EQ(made_up().madeUpCloseGate(stream_), kSuccess);
  std::atomic<bool> done{false};
  std::thread copier = in_thread([&] {
    EXPECT_EQ(stage(to(host.data(), 8 * kMiB)), kSuccess);
    done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(done);
  std::memset(host.data(), 2, 8 * kMiB);  // as work before it may do
  ASSERT_EQ(made_up().madeUpOpenGate(stream_), kSuccess);
  copier.join();
  EXPECT_EQ(bytes_of(device_)[0], 2);
  EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), 8 * kMiB), 0);
}

TEST_F(Staged, OthersSubmitToAStreamWhoseCopyWaits) {
  static std::atomic<int> ran{0};
  ran = 0;
  const Memory host(8 * kMiB, 3);
  for (const Stream stream : {stream_, kLegacyStream}) {
    warm_up();  // a copy that is left to the driver would keep them out
    ASSERT_EQ(made_up().madeUpCloseGate(stream), kSuccess);
    std::thread copier = in_thread([&] {
      const LinearCopy copy = from(host.data(), 8 * kMiB, stream);
      const auto result = staged_copy(driver(), copy);
      EXPECT_EQ(result ? *result : plain(copy), kSuccess);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    // The thread that opens the gate submits before it does: a hang, if the copy kept it out.
    for (const Stream to : {stream, kLegacyStream, stream_})
      launch(
          to, [](const unsigned long long*) { ++ran; }, 0);
    ASSERT_EQ(made_up().madeUpOpenGate(stream), kSuccess);
    copier.join();
  }
  EXPECT_TRUE(test::eventually([] { return ran == 6; }));
}

TEST_F(Staged, CopiesBehindManyClosedGatesLeaveTheRingToOthers) {
  constexpr int kThreads = 12;
  std::vector<Stream> streams;
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<DevicePointer> devices;
  std::vector<std::thread> threads;
  std::atomic<int> staged{0};
  for (int t = 0; t < kThreads; ++t) {
    streams.push_back(make_stream(kStreamNonBlocking));
    memory.push_back(std::make_unique<Memory>(16 * kMiB, static_cast<char>(t)));
    devices.push_back(allocate(16 * kMiB));
    ASSERT_EQ(made_up().madeUpCloseGate(streams.back()), kSuccess);
  }
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.push_back(in_thread([&, t] {
      const LinearCopy copy{Direction::to_device, true, streams[t], devices[t], memory[t]->data(), 16 * kMiB};
      const auto result = staged_copy(driver(), copy);
      if (result) ++staged;
      ASSERT_EQ(result ? *result : plain(copy), kSuccess);
    }));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const Memory host(4 * kMiB, 77);
  const LinearCopy own = to(host.data(), 4 * kMiB, make_stream(kStreamNonBlocking));
  if (!staged_copy(driver(), own)) {
    ASSERT_EQ(plain(own), kSuccess);
  }
  EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), 4 * kMiB), 0);
  for (const Stream stream : streams) ASSERT_EQ(made_up().madeUpOpenGate(stream), kSuccess);
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(staged, 1) << "several share the ring";
  for (std::size_t t = 0; t < kThreads; ++t)
    EXPECT_EQ(std::memcmp(bytes_of(devices[t]), memory[t]->data(), 16 * kMiB), 0);
  ASSERT_EQ(stage(to(host.data(), 4 * kMiB)), kSuccess) << "the ring has been given back";
}

// ---- no copy is cut ----

struct Seen {
  DevicePointer device = 0;
  std::atomic<int> looks{0}, halves{0};
};
Seen seen;

void look_for_halves(const unsigned long long*) {
  const auto* const bytes = static_cast<const char*>(made_up().madeUpDeviceBytes(seen.device));
  const char first = bytes[0];
  for (std::size_t at = 0; at < 16 * kMiB; at += 256 * kKiB) {
    if (bytes[at] != first) ++seen.halves;
  }
  ++seen.looks;
}

TEST_F(Staged, LaunchesOfOtherThreadsSeeACopyWhole) {
  seen.device = device_;
  seen.looks = seen.halves = 0;
  made_up().madeUpDelayWork(20);
  const Memory one(16 * kMiB, 1), two(16 * kMiB, 2);
  ASSERT_EQ(stage(to(one.data(), 16 * kMiB)), kSuccess);
  std::atomic<bool> stop{false};
  std::vector<std::thread> launchers;
  for (const Stream stream : {stream_, kLegacyStream}) {
    launchers.push_back(in_thread([&stop, stream] {
      // The legacy stream and this one order their work.
      while (!stop) {
        launch(stream, look_for_halves, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }));
  }
  int staged = 0;
  for (int i = 0; i < 60 || (staged < 5 && i < 600); ++i) {
    const LinearCopy copy = to(i % 2 == 0 ? two.data() : one.data(), 16 * kMiB);
    const auto result = staged_copy(driver(), copy);
    if (result) ++staged;
    ASSERT_EQ(result ? *result : plain(copy), kSuccess);
  }
  stop = true;
  for (std::thread& launcher : launchers) launcher.join();
  EXPECT_GT(seen.looks, 0);
  EXPECT_EQ(seen.halves, 0);
}

TEST_F(Staged, AStreamThatOthersKeepBusyIsLeftToTheDriver) {
  made_up().madeUpDelayWork(3000);
  const Memory host(4 * kMiB, 5);
  std::atomic<bool> stop{false};
  std::thread launcher = in_thread([&] {
    while (!stop) {
      launch(
          stream_, [](const unsigned long long*) {}, 0);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
  });
  const auto is_left = [&] { return !staged_copy(driver(), to(host.data(), 4 * kMiB)); };
  EXPECT_TRUE(test::eventually(is_left));
  // The next one does not even look.
  const auto records = made_up().madeUpCalls("cuPointerGetAttribute");
  EXPECT_TRUE(is_left());
  EXPECT_EQ(made_up().madeUpCalls("cuPointerGetAttribute"), records);
  stop = true;
  launcher.join();
}

// ---- errors ----

TEST_F(Staged, AnErrorAtAnyPieceIsTheCallsResultAndLeavesNothingBehind) {
  constexpr int kSomeError = 999;
  const Memory host(24 * kMiB, 4), back(24 * kMiB);
  Event event = nullptr;
  ASSERT_EQ(driver().event_create(&event, kEventNoTiming), kSuccess);
  for (const char* name : {"cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventQuery", "cuMemcpyDtoHAsync_v2"}) {
    for (const unsigned nth : {1, 2, 3, 7, 20}) {
      const bool out = std::string(name) == "cuMemcpyDtoHAsync_v2";
      made_up().madeUpFailCall(name, nth, kSomeError);
      const auto result =
          staged_copy(driver(), out ? from(back.data(), 24 * kMiB) : to(host.data(), 24 * kMiB));
      // A first call that fails has done nothing: the driver's own copy says what is wrong. How often an
      // event is asked for depends on the machine.
      if (nth == 1) {
        EXPECT_FALSE(result) << name;
      } else if (std::string(name) != "cuEventQuery" || result != kSuccess) {
        EXPECT_EQ(result, kSomeError) << name << ' ' << nth;
      }
      for (int i = 0; i < 20; ++i) driver().event_query(event);  // the failure may lie ahead
      std::memset(bytes_of(device_), 0, 24 * kMiB);
      ASSERT_EQ(stage(to(host.data(), 24 * kMiB)), kSuccess) << name << ' ' << nth;
      EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), 24 * kMiB), 0) << name << ' ' << nth;
    }
  }
}

/// 0: an error that stays was the copy's result, and the next copy asked nothing of the driver.
int break_a_copy() {
  call<Result(unsigned)>("cuInit")(0);
  Context context = nullptr;
  driver().context_create(&context, 0, 0);
  DevicePointer device = 0;
  call<Result(DevicePointer*, std::size_t)>("cuMemAlloc_v2")(&device, 8 * kMiB);
  const Memory host(8 * kMiB);
  const LinearCopy copy{Direction::to_device, false, kLegacyStream, device, host.data(), 8 * kMiB};
  if (staged_copy(driver(), copy) != kSuccess) return 1;
  made_up().madeUpFailCall("cuMemcpyHtoDAsync_v2", 3, kLaunchFailed);
  if (staged_copy(driver(), copy) != kLaunchFailed) return 2;
  const auto calls = made_up().madeUpCalls("cuPointerGetAttribute");
  if (staged_copy(driver(), copy)) return 3;
  return made_up().madeUpCalls("cuPointerGetAttribute") == calls ? 0 : 4;
}

TEST(StagedCopyDeath, AnErrorThatStaysEndsStaging) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(::_exit(break_a_copy()), testing::ExitedWithCode(0), "");
}

// ---- contexts, forks ----

TEST_F(Staged, AResetBetweenCopiesIsSurvived) {
  const Memory host(8 * kMiB, 9);
  for (int i = 0; i < 20; ++i) {
    end_context();
    ASSERT_EQ(driver().context_create(&context_, 0, 0), kSuccess);
    stream_ = make_stream(0);
    device_ = allocate(kDeviceBytes);
    ASSERT_EQ(stage(to(host.data(), 8 * kMiB)), kSuccess) << i;
    EXPECT_EQ(std::memcmp(bytes_of(device_), host.data(), 8 * kMiB), 0);
  }
}

TEST_F(Staged, ForksBesideACopyLeaveParentAndChildWhole) {
  const Memory host(16 * kMiB, 6);
  std::atomic<bool> stop{false};
  std::thread copier = in_thread([&] {
    while (!stop) ASSERT_EQ(stage(to(host.data(), 16 * kMiB)), kSuccess);
  });
  for (int i = 0; i < 5; ++i) {
    test::in_child([&] {
      EXPECT_FALSE(staged_copy(driver(), to(host.data(), 16 * kMiB))) << "the driver is the parent's";
      const SubmissionGate::Entry entry(submission_gate(), stream_);
    });
  }
  stop = true;
  copier.join();
}

// ---- all at once ----

TEST_F(Staged, EightThreadsCopyAtRandom) {
  constexpr std::size_t kThreads = 8, kMost = 6 * kMiB;
  const Stream shared[] = {stream_, kLegacyStream, make_stream(kStreamNonBlocking), make_stream(0)};
  const auto steps = static_cast<int>(30 * test::test_scale());
  std::atomic<int> staged{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.push_back(in_thread([&, t] {
      std::minstd_rand random(t + 1);
      const Memory host(kMost + 64), wanted(kMost + 64);
      const DevicePointer device = allocate(kMost + 64);
      write_pattern(wanted.data(), kMost + 64, t);
      std::memcpy(bytes_of(device), wanted.data(), kMost + 64);
      for (int step = 0; step < steps; ++step) {
        const std::size_t bytes = kLeastBytes + random() % (kMost - kLeastBytes);
        const std::size_t at = random() % 64;
        const Stream stream = random() % 5 == 0 ? kThreadStream : shared[random() % std::size(shared)];
        LinearCopy copy{Direction::to_device, random() % 2 == 0, stream,
                        device + at,          host.data() + at,  bytes};
        if (random() % 2 == 0) {
          write_pattern(host.data() + at, bytes, static_cast<unsigned>(random()));
          std::memcpy(wanted.data() + at, host.data() + at, bytes);
        } else {
          copy.direction = Direction::from_device;
          std::memset(host.data() + at, 0xee, bytes);
        }
        const auto result = staged_copy(driver(), copy);
        if (result) ++staged;
        ASSERT_EQ(result ? *result : plain(copy), kSuccess);
        // The plain copies that return early: this stream's next one is behind them.
        if (copy.direction == Direction::from_device || !result) {
          LinearCopy back = copy;
          back.direction = Direction::from_device;
          ASSERT_EQ(plain(back), kSuccess);
        }
        ASSERT_EQ(std::memcmp(host.data() + at, wanted.data() + at, bytes), 0) << "step " << step;
        ASSERT_EQ(std::memcmp(bytes_of(device), wanted.data(), kMost + 64), 0) << "step " << step;
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(staged, 0);
}

}  // namespace
}  // namespace pinion::cuda
