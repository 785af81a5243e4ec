// Captures and graphs of the made-up driver.
#include "support/made_up_cuda_test/fixture.h"

namespace pinion::made_up_cuda {
namespace {

/// Host memory and a graph of one copy of it.
class MadeUpCaptures : public MadeUpCuda {
 protected:
  void begin(int mode = gpu::kCaptureGlobal) { ASSERT_EQ(cuda().begin_capture(stream_, mode), kSuccess); }
  int status() {
    int now = -1;
    EXPECT_EQ(cuda().is_capturing(stream_, &now), kSuccess);
    return now;
  }
  void capture() {
    begin(gpu::kCaptureRelaxed);
    ASSERT_EQ(cuda().copy_in_async(device_, memory_.data(), memory_.bytes(), stream_), kSuccess);
    ASSERT_EQ(cuda().end_capture(stream_, &graph_), kSuccess);
    ASSERT_EQ(cuda().graph_instantiate(&exec_, graph_, 0), kSuccess);
  }
  Result launch() {
    if (const Result refused = cuda().graph_launch(exec_, stream_)) return refused;
    return cuda().stream_synchronize(stream_);
  }
  /// The result of a forbidden call, and whether the capture was lost by it.
  void expect_forbidden(const std::function<Result()>& body, bool forbidden, bool other_thread = false) {
    Result result = -1;
    const auto make = [&] {
      cuda().context_set(context_);
      result = body();
    };
    if (other_thread) {
      std::thread(make).join();
    } else {
      make();
    }
    EXPECT_EQ(result, forbidden ? 900 : kSuccess);
    EXPECT_EQ(status(), forbidden ? 2 : 1);
    EXPECT_EQ(cuda().end_capture(stream_, &graph_), forbidden ? 901 : kSuccess);
    EXPECT_EQ(status(), 0);
  }
  Result register_memory() { return cuda().host_register(memory_.data(), memory_.bytes(), kPortable); }

  Pages memory_{kMiB, 1};
  Graph graph_ = nullptr;
  GraphExec exec_ = nullptr;
};

TEST_F(MadeUpCaptures, ForbidsRegistering) {
  for (const int mode : {gpu::kCaptureGlobal, gpu::kCaptureThreadLocal}) {
    begin(mode);
    expect_forbidden([&] { return register_memory(); }, true);
  }
  begin();
  expect_forbidden([&] { return register_memory(); }, true, true);
  for (const int mode : {gpu::kCaptureThreadLocal, gpu::kCaptureRelaxed}) {
    begin(mode);
    expect_forbidden([&] { return register_memory(); }, false, true);
    ASSERT_EQ(cuda().host_unregister(memory_.data()), kSuccess);
  }
}

TEST_F(MadeUpCaptures, ForbidsWaitsAndQueries) {
  Event event = nullptr;
  void* memory = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  ASSERT_EQ(register_memory(), kSuccess);
  const std::function<Result()> calls[] = {
      [&] { return cuda().host_unregister(memory_.data()); },
      [&] { return cuda().allocate_host(&memory, 4096, 0); },
      [&] { return cuda().event_query(event); },
      [&] { return cuda().event_synchronize(event); },
      [&] { return cuda().stream_synchronize(kThreadStream); },
  };
  for (const auto& one : calls) {
    begin();
    expect_forbidden(one, true);
  }
}

TEST_F(MadeUpCaptures, PermitsAllThatToARelaxedThread) {
  Event event = nullptr;
  ASSERT_EQ(cuda().event_create(&event, 0), kSuccess);
  for (const bool other : {false, true}) {
    begin();
    expect_forbidden(
        [&] {
          int mode = gpu::kCaptureRelaxed;
          EXPECT_EQ(cuda().exchange_capture_mode(&mode), kSuccess);
          EXPECT_EQ(register_memory(), kSuccess);
          EXPECT_EQ(cuda().event_synchronize(event), kSuccess);
          EXPECT_EQ(cuda().host_unregister(memory_.data()), kSuccess);
          return cuda().exchange_capture_mode(&mode);
        },
        false, other);
  }
}

TEST_F(MadeUpCaptures, ALostContextSynchronizeLosesThemInAnyMode) {
  begin(gpu::kCaptureRelaxed);
  expect_forbidden([] { return cuda().context_synchronize(); }, true, true);
}

TEST_F(MadeUpCaptures, PermitPageableCopiesAndEventsElsewhere) {
  Stream other = nullptr;
  Event event = nullptr;
  ASSERT_EQ(cuda().stream_create(&other, gpu::kNonBlocking), kSuccess);
  begin();
  expect_forbidden(
      [&] {
        EXPECT_EQ(cuda().copy_in(device_, memory_.data(), kMiB), kSuccess);
        EXPECT_EQ(cuda().copy_in_async(device_, memory_.data(), kMiB, other), kSuccess);
        EXPECT_EQ(cuda().event_create(&event, 0), kSuccess);
        return cuda().event_record(event, other);
      },
      false);
}

TEST_F(MadeUpCaptures, OfABlockingStreamForbidTheLegacyStream) {
  Stream blocking = nullptr;
  ASSERT_EQ(cuda().stream_create(&blocking, 0), kSuccess);
  ASSERT_EQ(cuda().begin_capture(blocking, gpu::kCaptureRelaxed), kSuccess);
  EXPECT_EQ(cuda().copy_in(device_, memory_.data(), kMiB), 906);
  EXPECT_EQ(cuda().end_capture(blocking, &graph_), 901);
}

TEST_F(MadeUpCaptures, ANodeOverUnregisteredMemoryFails) {
  ASSERT_EQ(register_memory(), kSuccess);
  capture();
  EXPECT_EQ(launch(), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory_.data()), kSuccess);
  EXPECT_EQ(launch(), 719);
}

TEST_F(MadeUpCaptures, ANodeAddedByHandFailsLikewise) {
  ASSERT_EQ(register_memory(), kSuccess);
  Copy3D shape;
  shape.source_type = gpu::kMemoryTypeHost;
  shape.source_host = memory_.data();
  shape.source_pitch = shape.target_pitch = shape.width = kMiB;
  shape.source_height = shape.target_height = shape.height = shape.depth = 1;
  shape.target_type = gpu::kMemoryTypeDevice;
  shape.target_device = device_;
  GraphNode node = nullptr;
  ASSERT_EQ(cuda().graph_create(&graph_, 0), kSuccess);
  ASSERT_EQ(cuda().graph_add_copy(&node, graph_, nullptr, 0, &shape, context_), kSuccess);
  ASSERT_EQ(cuda().graph_instantiate(&exec_, graph_, 0), kSuccess);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(1, kMiB));
  Pages other(kMiB, 5);
  shape.source_host = other.data();
  const auto set =
      call<Result(GraphExec, GraphNode, const Copy3D*, Context)>("cuGraphExecMemcpyNodeSetParams");
  ASSERT_EQ(set(exec_, node, &shape, context_), kSuccess);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(5, kMiB));
  ASSERT_EQ(cuda().graph_instantiate(&exec_, graph_, 0), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory_.data()), kSuccess);
  EXPECT_EQ(launch(), 719);
}

TEST_F(MadeUpCaptures, AGraphSetsMemory) {
  struct {
    DevicePointer to;
    std::size_t pitch = 0;
    unsigned value = 6, element = 1;
    std::size_t width = 4096, height = 1;
  } shape{device_};
  const auto add = call<Result(GraphNode*, Graph, const GraphNode*, std::size_t, const void*, Context)>(
      "cuGraphAddMemsetNode");
  GraphNode node = nullptr;
  ASSERT_EQ(cuda().graph_create(&graph_, 0), kSuccess);
  ASSERT_EQ(add(&node, graph_, nullptr, 0, &shape, context_), kSuccess);
  shape.to = reinterpret_cast<DevicePointer>(memory_.data());
  EXPECT_EQ(add(&node, graph_, nullptr, 0, &shape, context_), 1) << "pageable memory";
  ASSERT_EQ(cuda().graph_instantiate(&exec_, graph_, 0), kSuccess);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(6, 4096));
}

TEST_F(MadeUpCaptures, ANodeOverRemappedRegisteredMemoryIsStale) {
  if (!made_up().madeUpPins()) GTEST_SKIP() << "this machine pins no pages";
  ASSERT_EQ(register_memory(), kSuccess);
  capture();
  memory_.map_anew(2);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(1, kMiB));
}

TEST_F(MadeUpCaptures, ANodeOverPageableMemoryReadsWhatIsThere) {
  capture();
  memory_.fill(2);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(2, kMiB));
  memory_.map_anew(3);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(3, kMiB));
  ASSERT_EQ(register_memory(), kSuccess);
  ASSERT_EQ(cuda().host_unregister(memory_.data()), kSuccess);
  memory_.fill(4);
  EXPECT_EQ(launch(), kSuccess);
  EXPECT_TRUE(device_holds(4, kMiB));
}

TEST_F(MadeUpCaptures, ALaunchReadsPageableMemoryAtOnceIfItIsSmall) {
  capture();
  close_gate(stream_);
  ASSERT_EQ(cuda().graph_launch(exec_, stream_), kSuccess);
  memory_.fill(2);
  open_gate(stream_);
  ASSERT_EQ(cuda().stream_synchronize(stream_), kSuccess);
  EXPECT_TRUE(device_holds(1, kMiB));
}

TEST_F(MadeUpCaptures, ALaunchWithALargePageableCopyWaits) {
  Pages large(16 * kMiB, 1);
  begin();
  ASSERT_EQ(cuda().copy_in_async(device_, large.data(), 16 * kMiB, stream_), kSuccess);
  ASSERT_EQ(cuda().end_capture(stream_, &graph_), kSuccess);
  ASSERT_EQ(cuda().graph_instantiate(&exec_, graph_, 0), kSuccess);
  close_gate(stream_);
  EXPECT_TRUE(waits(stream_, [&] { return cuda().graph_launch(exec_, stream_); }));
}

}  // namespace
}  // namespace pinion::made_up_cuda
