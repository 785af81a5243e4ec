// Pinned memory that is bounded, as by a small machine: what the program pins itself is refused while Pinion
// holds too much of it idle. From outside (program.h).
#include <gtest/gtest.h>

#include <cstring>

#include "intercept/cuda/program.h"

namespace pinion::cuda {

extern "C" {
Result cuMemHostRegister(void*, std::size_t, unsigned);
Result cuMemHostAlloc(void**, std::size_t, unsigned);
Result cuMemAllocHost_v2(void**, std::size_t);
Result cuMemFreeHost(void*);
}

}  // namespace pinion::cuda

namespace pinion::test {
namespace {

/// Calls of `g_bounded` fail with `g_code` while more than `g_most` bytes are pinned.
const char* g_bounded = nullptr;
unsigned long long g_most = 0;
Result g_code = kOutOfMemory;
int g_calls = 0;

void refuse_beyond(const char* name) {
  static thread_local bool inside = false;
  if (inside || g_bounded == nullptr || std::strcmp(name, g_bounded) != 0) return;
  inside = true;
  ++g_calls;
  if (madeUpRegisteredBytes() > g_most) madeUpFailCall(name, 1, g_code);
  inside = false;
}

struct Pin {
  const char* name;
  Result (*pin)(void** memory, std::size_t bytes);
  Result (*unpin)(void* memory);
};

template <Result (*function)(void*, std::size_t, unsigned)>
Result register_block(void** memory, std::size_t bytes) {
  static Memory* const block = new Memory(bytes);
  *memory = block->data();
  return function(*memory, bytes, 0);
}

const Pin kPins[] = {
    {"cuMemHostAlloc", [](void** memory, std::size_t bytes) { return cuMemHostAlloc(memory, bytes, 0); },
     cuMemFreeHost},
    {"cuMemAllocHost_v2", cuMemAllocHost_v2, cuMemFreeHost},
    {"cuMemHostRegister_v2", register_block<cuMemHostRegister_v2>, cuMemHostUnregister},
    {"cuMemHostRegister", register_block<cuMemHostRegister>, cuMemHostUnregister},
};

constexpr Result kOperatingSystem = 304;

class CudaScarcity : public CudaProgram, public testing::WithParamInterface<Pin> {
 protected:
  void TearDown() override { madeUpAtCall(nullptr); }

  /// Registers buffers that stay idle, and refuses the call while more than all but `less` stays pinned.
  void bound(std::size_t less, Result code) {
    for (Memory* const buffer : {&first_, &second_, &third_}) ASSERT_TRUE(register_by_use(*buffer));
    const unsigned long long pinned = madeUpRegisteredBytes();
    ASSERT_GE(pinned, 3 * kBytes);
    g_bounded = GetParam().name;
    g_most = pinned - less;
    g_code = code;
    g_calls = 0;
    madeUpAtCall(refuse_beyond);
  }
  void expect_that_idle_registrations_make_way(Result code) {
    ASSERT_NO_FATAL_FAILURE(bound(2 * kBytes, code));
    void* memory = nullptr;
    ASSERT_EQ(GetParam().pin(&memory, kBytes), kSuccess);
    EXPECT_GE(g_calls, 2) << "nothing was refused";
    EXPECT_EQ(GetParam().unpin(memory), kSuccess);
    madeUpAtCall(nullptr);
    first_.fill(31);
    EXPECT_EQ(cuMemcpyHtoD_v2(device_, first_.data(), kBytes), kSuccess);
    EXPECT_TRUE(device_holds(kBytes, 31));
  }

  Memory first_{kBytes}, second_{kBytes}, third_{kBytes};
};

INSTANTIATE_TEST_SUITE_P(Pins, CudaScarcity, testing::ValuesIn(kPins),
                         [](const auto& pin) { return pin.param.name; });

TEST_P(CudaScarcity, IdleRegistrationsMakeWayForWhatTheProgramPins) {
  expect_that_idle_registrations_make_way(kOutOfMemory);
}

TEST_P(CudaScarcity, IdleRegistrationsMakeWayWhereTheSystemRefuses) {
  expect_that_idle_registrations_make_way(kOperatingSystem);
}

TEST_P(CudaScarcity, ARefusalThatLastsReachesTheProgram) {
  ASSERT_NO_FATAL_FAILURE(bound(0, kOutOfMemory));
  g_most = 0;
  void* memory = nullptr;
  EXPECT_EQ(GetParam().pin(&memory, kBytes), kOutOfMemory);
  EXPECT_LE(g_calls, 10) << "the program was held up";
}

TEST_P(CudaScarcity, OtherRefusalsLeaveRegistrationsAlone) {
  ASSERT_NO_FATAL_FAILURE(bound(2 * kBytes, kInvalidValue));
  void* memory = nullptr;
  EXPECT_EQ(GetParam().pin(&memory, kBytes), kInvalidValue);
  EXPECT_TRUE(is_registered(first_.data()));
}

}  // namespace
}  // namespace pinion::test
