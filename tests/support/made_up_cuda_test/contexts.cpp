// Contexts of the made-up driver, streams, events, and what waits for what.
#include "support/made_up_cuda_test/fixture.h"

namespace pinion::made_up_cuda {
namespace {

class MadeUpContexts : public MadeUpCuda {};

// ---- contexts, and what waits ----

TEST_F(MadeUpContexts, RegisterNeedsAContextAndUnregisterNone) {
  Pages memory(kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kKiB, 0), kSuccess);
  std::thread([&] {
    EXPECT_EQ(cuda().host_register(memory.data() + kKiB, kKiB, 0), 201);
    EXPECT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  }).join();
}

TEST_F(MadeUpContexts, UnregisterWaitsForTheWholeContext) {
  Pages memory(kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().host_unregister(memory.data()); }));
}

TEST_F(MadeUpContexts, RegisterWaitsForNothing) {
  Pages memory(kMiB);
  close_gate(stream_);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  open_gate(stream_);
}

TEST_F(MadeUpContexts, InASecondContextNothingWaitsAndAPendingCopyFails) {
  Pages memory(kMiB, 1);
  Context second = nullptr;
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  cuda().context_set(context_);
  close_gate(stream_);
  ASSERT_EQ(cuda().copy_in_async(device_, memory.data(), kMiB, stream_), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  open_gate(stream_);
  EXPECT_EQ(cuda().stream_synchronize(stream_), 719);
  EXPECT_EQ(cuda().copy_in(device_, memory.data(), 64), 719);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), 719);
  cuda().context_set(second);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  call<Result(Context)>("cuCtxDestroy_v2")(second);
  cuda().context_set(context_);
}

TEST_F(MadeUpContexts, AFaultBreaksAllContexts) {
  Pages memory(kMiB);
  Context second = nullptr;
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  made_up().madeUpBreak(context_, 700);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, 0), 700);
  call<Result(Context)>("cuCtxDestroy_v2")(second);
}

TEST_F(MadeUpContexts, TheEndOfAContextEndsItsRegistrations) {
  Pages memory(kMiB);
  Context second = nullptr;
  unsigned long long first_id = 0, id = 0, next_id = 0;
  ASSERT_EQ(cuda().context_id(context_, &first_id), kSuccess);
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  ASSERT_EQ(cuda().context_id(second, &id), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(second), kSuccess);
  Context third = nullptr;
  ASSERT_EQ(cuda().context_create(&third, 0, 0), kSuccess);
  ASSERT_EQ(cuda().context_id(third, &next_id), kSuccess);
  EXPECT_EQ(third, second) << "handles recur";
  EXPECT_NE(next_id, id);
  EXPECT_NE(first_id, id);
  EXPECT_EQ(cuda().host_unregister(memory.data()), 713);
  EXPECT_EQ(cuda().host_register(memory.data(), kMiB, kPortable), kSuccess);
  ASSERT_EQ(call<Result(Context)>("cuCtxDestroy_v2")(third), kSuccess);
}

TEST_F(MadeUpContexts, AResetEndsThePrimaryContextOnly) {
  Pages memory(2 * kMiB);
  ASSERT_EQ(cuda().host_register(memory.data(), kMiB, 0), kSuccess);
  Context primary = nullptr;
  ASSERT_EQ(cuda().primary_retain(&primary, 0), kSuccess);
  ASSERT_EQ(cuda().context_set(primary), kSuccess);
  ASSERT_EQ(cuda().host_register(memory.data() + kMiB, kMiB, 0), kSuccess);
  ASSERT_EQ(cuda().primary_reset(0), kSuccess);
  EXPECT_EQ(cuda().host_unregister(memory.data() + kMiB), 713);
  EXPECT_EQ(cuda().host_unregister(memory.data()), kSuccess);
  EXPECT_EQ(cuda().context_synchronize(), 709);
  cuda().context_set(context_);
}

/// Calls beside one that waits in the driver for a gated stream.
class BesideAWait : public MadeUpCuda {
 protected:
  void wait_in(const std::function<Result()>& body) {
    waiter_ = std::thread([this, body] {
      cuda().context_set(context_);
      EXPECT_EQ(body(), kSuccess);
    });
    while (made_up().madeUpWaiting() == 0) ::usleep(1000);
    ASSERT_EQ(cuda().stream_create(&other_, gpu::kNonBlocking), kSuccess);
    ASSERT_EQ(cuda().event_create(&event_, 0), kSuccess);
  }
  /// Whether a call waits beside the waiting one. The gate is open afterwards.
  bool waits_too(Stream gated, const std::function<Result()>& body) {
    std::atomic<bool> done{false};
    std::thread caller([&] {
      cuda().context_set(context_);
      EXPECT_EQ(body(), kSuccess);
      done = true;
    });
    for (int looks = 0; looks < kLooks && !done; ::usleep(1000))
      looks = made_up().madeUpWaiting() > 1 ? looks + 1 : 0;
    const bool waited = !done;
    open_gate(gated);
    caller.join();
    waiter_.join();
    return waited;
  }
  std::function<Result()> launch(Stream& stream) {
    return [&stream] {
      gpu::Function nothing = nullptr;
      cuda().module_function(&nothing, nullptr, "nothing");
      return cuda().launch(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
    };
  }
  Pages memory_{4 * kMiB, 1}, fresh_{kMiB, 1};
  Stream other_ = nullptr;
  Event event_ = nullptr;
  std::thread waiter_;
};

TEST_F(BesideAWait, OfAnUnregisterLaunchesWaitEverywhere) {
  ASSERT_EQ(cuda().host_register(memory_.data(), kMiB, 0), kSuccess);
  close_gate(stream_);
  wait_in([&] { return cuda().host_unregister(memory_.data()); });
  EXPECT_EQ(cuda().event_query(event_), kSuccess);
  EXPECT_TRUE(waits_too(stream_, launch(other_)));
}

TEST_F(BesideAWait, OfAnUnregisterRegistersWait) {
  ASSERT_EQ(cuda().host_register(memory_.data(), kMiB, 0), kSuccess);
  close_gate(stream_);
  wait_in([&] { return cuda().host_unregister(memory_.data()); });
  EXPECT_TRUE(waits_too(stream_, [&] { return cuda().host_register(fresh_.data(), kMiB, 0); }));
}

TEST_F(BesideAWait, OfASyncCopyLaunchesWaitEverywhere) {
  close_gate(kLegacyStream);
  wait_in([&] { return cuda().copy_in(device_, memory_.data(), 4 * kMiB); });
  EXPECT_TRUE(waits_too(kLegacyStream, launch(other_)));
}

TEST_F(BesideAWait, OfALargeAsyncCopyOtherStreamsRun) {
  close_gate(stream_);
  wait_in([&] { return cuda().copy_in_async(device_, memory_.data(), 4 * kMiB, stream_); });
  EXPECT_EQ(launch(other_)(), kSuccess);
  EXPECT_EQ(cuda().stream_synchronize(other_), kSuccess);
  EXPECT_TRUE(waits_too(stream_, launch(stream_)));
}

TEST_F(BesideAWait, OfALargeAsyncCopyRegistersWait) {
  close_gate(stream_);
  wait_in([&] { return cuda().copy_in_async(device_, memory_.data(), 4 * kMiB, stream_); });
  EXPECT_TRUE(waits_too(stream_, [&] { return cuda().host_register(fresh_.data(), kMiB, 0); }));
}

TEST_F(BesideAWait, OfAnEventNothingWaits) {
  close_gate(stream_);
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, gpu::kEventBlocking), kSuccess);
  ASSERT_EQ(cuda().event_record(event, stream_), kSuccess);
  wait_in([&] { return cuda().event_synchronize(event); });
  EXPECT_EQ(cuda().host_register(fresh_.data(), kMiB, 0), kSuccess);
  EXPECT_FALSE(waits_too(stream_, launch(stream_)));
}

// ---- streams and events ----

TEST_F(MadeUpContexts, LegacyAndBlockingStreamsWaitForEachOther) {
  Pages source(4096, 1);
  Stream blocking = nullptr;
  ASSERT_EQ(cuda().stream_create(&blocking, 0), kSuccess);
  close_gate(kLegacyStream);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4096, blocking), kSuccess);
  EXPECT_EQ(cuda().stream_query(blocking), kNotReady);
  ASSERT_EQ(cuda().copy_in_async(device_, source.data(), 4096, stream_), kSuccess);
  EXPECT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(cuda().stream_query(blocking), kNotReady);
  open_gate(kLegacyStream);
  EXPECT_EQ(cuda().stream_synchronize(blocking), kSuccess);
}

TEST_F(MadeUpContexts, EachThreadHasAStreamOfItsOwn) {
  close_gate(kThreadStream);
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  std::thread([&] {
    cuda().context_set(context_);
    EXPECT_EQ(cuda().event_record(event, kThreadStream), kSuccess);
    EXPECT_EQ(cuda().event_synchronize(event), kSuccess);
  }).join();
  EXPECT_EQ(cuda().stream_query(kThreadStream), kNotReady);
  EXPECT_EQ(cuda().stream_query(kLegacyStream), kNotReady);
  open_gate(kThreadStream);
  EXPECT_EQ(cuda().stream_synchronize(kThreadStream), kSuccess);
}

TEST_F(MadeUpContexts, AnEventTellsOfTheWorkBeforeIt) {
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, gpu::kEventBlocking | gpu::kEventNoTiming), kSuccess);
  EXPECT_EQ(cuda().event_query(event), kSuccess);
  close_gate(stream_);
  ASSERT_EQ(cuda().event_record(event, stream_), kSuccess);
  EXPECT_EQ(cuda().event_query(event), kNotReady);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().event_synchronize(event); }));
  EXPECT_EQ(cuda().event_query(event), kSuccess);
}

TEST_F(MadeUpContexts, AStreamWaitsForAnEventOfAnother) {
  Event event = nullptr;
  Stream other = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  ASSERT_EQ(cuda().stream_create(&other, gpu::kNonBlocking), kSuccess);
  close_gate(stream_);
  ASSERT_EQ(cuda().event_record(event, stream_), kSuccess);
  ASSERT_EQ(call<Result(Stream, Event, unsigned)>("cuStreamWaitEvent")(other, event, 0), kSuccess);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().stream_synchronize(other); }));
}

TEST_F(MadeUpContexts, AKernelRunsAHostFunctionInItsTurn) {
  const auto add = reinterpret_cast<gpu::Function>(made_up().madeUpKernel(
      [](const unsigned long long* values) {
        *reinterpret_cast<std::atomic<unsigned long long>*>(values[0]) += values[1];
      },
      2));
  std::atomic<unsigned long long> sum{0};
  unsigned long long where = reinterpret_cast<unsigned long long>(&sum), what = 5;
  void* parameters[] = {&where, &what};
  close_gate(stream_);
  ASSERT_EQ(cuda().launch(add, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), kSuccess);
  what = 100;
  EXPECT_EQ(sum, 0U);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(sum, 5U);
}

TEST_F(MadeUpContexts, AStreamWaitsForAWordOfRegisteredMemory) {
  Pages memory(4096);
  auto* const word = reinterpret_cast<std::uint32_t*>(memory.data());
  const auto address = reinterpret_cast<DevicePointer>(word);
  EXPECT_EQ(cuda().stream_wait_value(stream_, address, 2, 0), 1) << "pageable memory";
  ASSERT_EQ(cuda().host_register(memory.data(), 4096, gpu::kDeviceMap), kSuccess);
  ASSERT_EQ(cuda().stream_wait_value(stream_, address, 2, 0), kSuccess);
  EXPECT_EQ(cuda().stream_query(stream_), kNotReady);
  __atomic_store_n(word, 3, __ATOMIC_RELEASE);
  EXPECT_EQ(cuda().stream_synchronize(stream_), kSuccess);
}

TEST_F(MadeUpContexts, AnEventIsRecordedInItsOwnContextOnly) {
  Context second = nullptr;
  Event event = nullptr;
  ASSERT_EQ(cuda().context_create(&second, 0, 0), kSuccess);
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  EXPECT_EQ(cuda().event_record(event, stream_), 400);
  EXPECT_EQ(cuda().event_record(event, kLegacyStream), kSuccess);
  call<Result(Context)>("cuCtxDestroy_v2")(second);
}

TEST_F(MadeUpContexts, AKernelThatUsesNoMemoryIsAFault) {
  gpu::Function look = nullptr;
  ASSERT_EQ(cuda().module_function(&look, nullptr, "look"), kSuccess);
  DevicePointer nowhere = 64, quarter = 16, log = device_;
  void* parameters[] = {&nowhere, &quarter, &log};
  ASSERT_EQ(cuda().launch(look, 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), kSuccess);
  EXPECT_EQ(cuda().stream_synchronize(stream_), 700);
}

TEST_F(MadeUpContexts, CallsInsideACallbackAreNotPermitted) {
  struct Seen {
    Pages memory{kMiB};
    Result registered = 0, unregistered = 0;
  } seen;
  ASSERT_EQ(cuda().launch_host(
                stream_,
                [](void* data) {
                  auto& s = *static_cast<Seen*>(data);
                  s.registered = cuda().host_register(s.memory.data(), kMiB, 0);
                  s.unregistered = cuda().host_unregister(s.memory.data());
                },
                &seen),
            kSuccess);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_EQ(seen.registered, 800);
  EXPECT_EQ(seen.unregistered, 800);
}

}  // namespace
}  // namespace pinion::made_up_cuda
