// Every way in which memory goes, while a copy between it and a GPU is at each of its stages: the bytes are
// those that a plain driver would move, and nothing hangs. An ordinary user of the driver, linked with the
// made-up one. CMakeLists.txt runs it under the preload with registered copies and with staged ones, and
// without Pinion, which shows what a plain driver does.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "device/cuda/driver_api.h"
#include "support/eventually.h"
#include "support/gate.h"
#include "support/made_up_cuda/made_up_cuda.h"
#include "support/ways_memory_goes.h"

using namespace pinion::cuda;

extern "C" {
Result cuInit(unsigned);
Result cuDevicePrimaryCtxRetain(Context*, Ordinal);
Result cuCtxSetCurrent(Context);
Result cuMemAlloc_v2(DevicePointer*, std::size_t);
Result cuMemcpyHtoD_v2(DevicePointer, const void*, std::size_t);
Result cuMemcpyDtoH_v2(void*, DevicePointer, std::size_t);
Result cuMemcpyDtoHAsync_v2(void*, DevicePointer, std::size_t, Stream);
Result cuStreamCreate(Stream*, unsigned);
Result cuStreamSynchronize(Stream);
}

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2, kDevice = 3;
constexpr std::size_t kMiB = std::size_t{1} << 20;

enum class State {
  idle,         ///< nothing is under way
  in_flight,    ///< a copy from the GPU waits for its stream, which the program holds back
  registering,  ///< a copy has called the driver to register the memory, which has not pinned it yet
  staged        ///< the first piece of a staged copy from the GPU is about to be submitted
};
const char* const kStates[] = {"Idle", "InFlight", "Registering", "Staged"};

/// What the process runs under, by CMakeLists.txt.
enum class Mode { plain, registered, staged };
Mode mode() {
  const char* const options = std::getenv("PINION");
  if (options == nullptr || std::strcmp(options, "off") == 0) return Mode::plain;
  return std::strstr(options, "cuda=stage") != nullptr ? Mode::staged : Mode::registered;
}

struct Cell {
  EventKind event;
  State state;
};

Gate g_gate;
std::atomic<const char*> g_held_call{""};
void at_call(const char* name) {
  if (std::strcmp(name, g_held_call.load()) == 0) g_gate.pass();
}

class CopiesMatrix : public ::testing::TestWithParam<Cell> {
 protected:
  void SetUp() override {
    if (!madeUpPins()) GTEST_SKIP() << "needs io_uring to pin pages";
    if (!is_possible(GetParam().state)) GTEST_SKIP() << "such a copy is made under other options";
    NEEDS_MALLOC_OF_LIBC(GetParam().event);
    event_pages = 1100;  // enough to be staged
    ASSERT_EQ(cuInit(0), kSuccess);
    ASSERT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), kSuccess);
    ASSERT_EQ(cuCtxSetCurrent(context_), kSuccess);
    madeUpSetFreeMemory(std::size_t{64} << 30);
    ASSERT_EQ(cuMemAlloc_v2(&device_, bytes_of(4 * event_pages)), kSuccess);
    ASSERT_EQ(cuStreamCreate(&stream_, 1), kSuccess);
    madeUpAtCall(at_call);
    if (mode() == Mode::registered) make_registering_worthwhile();
  }
  void TearDown() override { let_go_on(); }

  /// A context for registrations is made after so many bytes.
  void make_registering_worthwhile() {
    const Range memory = map(8 * kMiB);
    for (int i = 0; i < 40; ++i)
      ASSERT_EQ(cuMemcpyHtoD_v2(device_, pointer(memory.begin), memory.bytes()), kSuccess);
    ::munmap(pointer(memory.begin), memory.bytes());
    ASSERT_TRUE(eventually([&] {
      const Range probe = map(bytes_of(64));
      EXPECT_EQ(cuMemcpyHtoD_v2(device_, pointer(probe.begin), probe.bytes()), kSuccess);
      const bool made = is_registered(probe);
      ::munmap(pointer(probe.begin), probe.bytes());
      return made;
    })) << "nothing is registered";
  }
  static bool is_possible(State state) {
    if (state == State::registering) return mode() == Mode::registered;
    return state != State::staged || mode() == Mode::staged;
  }
  static bool is_registered(Range memory) {
    const void* begin = nullptr;
    std::size_t bytes = 0;
    return madeUpRegistration(pointer(memory.begin), &begin, &bytes) != 0;
  }

  std::uint64_t* device_words() const { return static_cast<std::uint64_t*>(madeUpDeviceBytes(device_)); }
  /// Makes the GPU's memory hold what a fill(memory, stamp) would write.
  void fill_device(Range memory, std::uint64_t stamp) const {
    for (Address a = memory.begin; a < memory.end; a += sizeof stamp)
      device_words()[(a - memory.begin) / sizeof stamp] = word_of(a, stamp);
  }
  void expect_sent(Range memory, std::uint64_t stamp) const {
    ASSERT_TRUE(holds(memory, stamp)) << "the test itself lost the contents";
    fill_device(memory, 0);
    ASSERT_EQ(cuMemcpyHtoD_v2(device_, pointer(memory.begin), memory.bytes()), kSuccess);
    ASSERT_EQ(cuStreamSynchronize(kLegacyStream), kSuccess);
    EXPECT_TRUE(holds(device_words(), memory, stamp)) << "STALE: other contents were sent";
  }
  /// Copies both ways, again and again: the memory is registered meanwhile, where it can be.
  void expect_copies(Range memory, std::uint64_t stamp) const {
    for (std::uint64_t i = 0; i < 4; ++i) {
      fill(memory, stamp + i);
      expect_sent(memory, stamp + i);
      fill_device(memory, ~(stamp + i));
      ASSERT_EQ(cuMemcpyDtoHAsync_v2(pointer(memory.begin), device_, memory.bytes(), stream_), kSuccess);
      EXPECT_TRUE(holds(memory, ~(stamp + i))) << "STALE: what was received went elsewhere";
    }
  }

  /// Makes the call in a thread of its own, which stops at this call of the driver's.
  template <class Copy>
  void stop_at(const char* call, Copy copy) {
    g_gate.arm();
    g_held_call = call;
    in_other_thread(copy);
    ASSERT_TRUE(g_gate.wait_reached()) << "the copy has not called " << call;
  }
  template <class Copy>
  void in_other_thread(Copy copy) {
    side_ = std::thread([this, copy] {
      EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
      EXPECT_EQ(copy(), kSuccess);
    });
  }
  /// Brings the memory, which holds kOld, into the state.
  void enter(State state, Range memory) {
    void* const host = pointer(memory.begin);
    fill_device(memory, kDevice);
    switch (state) {
      case State::idle:
        break;
      case State::in_flight:
        ASSERT_EQ(madeUpCloseGate(stream_), 0);
        in_other_thread([=, this] { return cuMemcpyDtoHAsync_v2(host, device_, memory.bytes(), stream_); });
        ASSERT_TRUE(eventually([] { return madeUpWaiting() > 0; })) << "the copy does not wait";
        break;
      case State::registering:
        stop_at("cuMemHostRegister_v2", [=, this] { return cuMemcpyHtoD_v2(device_, host, memory.bytes()); });
        break;
      case State::staged:
        stop_at("cuMemcpyDtoHAsync_v2", [=, this] { return cuMemcpyDtoH_v2(host, device_, memory.bytes()); });
        break;
    }
  }
  /// Lets the copy end.
  void let_go_on() {
    g_held_call = "";
    g_gate.open();
    if (stream_ != nullptr) madeUpOpenGate(stream_);
    if (side_.joinable()) side_.join();
  }

  Context context_ = nullptr;
  DevicePointer device_ = 0;
  Stream stream_ = nullptr;
  std::thread side_;
};

TEST_P(CopiesMatrix, CopiesMoveWhatAPlainDriverWouldMove) {
  const State state = GetParam().state;
  const auto event = GetParam().event.make();
  const Range memory = event->prepare();
  if (memory.empty()) GTEST_SKIP() << event->why_not;
  fill(memory, kOld);
  std::vector<Range> others = event->taken_too();
  const std::vector<Range> neighbours = event->neighbours();
  others.insert(others.end(), neighbours.begin(), neighbours.end());
  for (const Range& other : others) {
    fill(other, kOld);
    expect_sent(other, kOld);
  }
  if (state != State::registering) expect_sent(memory, kOld);
  ASSERT_NO_FATAL_FAILURE(enter(state, memory));

  event->fire();
  event->renew();  // at once, before another mapping of this process comes there
  if (HasFatalFailure()) return;
  EXPECT_TRUE(holds(event->untouched(), kOld));
  fill(memory, kNew);
  let_go_on();

  switch (state) {
    case State::idle:
      break;
    case State::in_flight:
    case State::staged:
      EXPECT_TRUE(holds(memory, kDevice)) << "STALE: the copy went elsewhere";
      break;
    case State::registering:
      EXPECT_TRUE(holds(device_words(), memory, kNew)) << "STALE: old contents were sent";
      break;
  }
  expect_copies(memory, 10);
  if (const Range to = event->moved_to(); !to.empty()) expect_copies(to, 20);
  for (const Range& other : event->taken_too()) expect_copies(other, 30);
  for (const Range& other : neighbours) {
    EXPECT_EQ(is_registered(other), mode() == Mode::registered) << "a neighbour's registration went";
    expect_sent(other, kOld);
  }
}

std::vector<Cell> all_cells() {
  std::vector<Cell> cells;
  for (const EventKind& event : kEvents)
    for (int state = 0; state < 4; ++state) cells.push_back({event, static_cast<State>(state)});
  return cells;
}

INSTANTIATE_TEST_SUITE_P(All, CopiesMatrix, ::testing::ValuesIn(all_cells()), [](const auto& info) {
  return std::string(info.param.event.name) + "_" + kStates[static_cast<int>(info.param.state)];
});

}  // namespace
}  // namespace pinion::test
