// Calls of several threads that wait for each other, from outside (program.h): none waits under Pinion for
// what it does not wait for without. And captures that begin beside copies: none is lost.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>

#include "intercept/cuda/program.h"
#include "support/eventually.h"

namespace pinion::test {
namespace {

class CudaWaits : public CudaProgram {
 protected:
  void SetUp() override {
    CudaProgram::SetUp();
    if (IsSkipped()) return;
    madeUpSetLongestWait(20'000);
    madeUpBeStrict(1);
  }

  enum class Buffer { registered, fresh };

  /// Another thread's synchronous copy waits for a gated stream, and keeps the context's work out of the
  /// driver; one more thread copies into an idle stream, and waits there. `call` uses that stream, and
  /// returns.
  template <class Call>
  void beside_a_waiting_copy(Buffer buffer, std::size_t bytes, Call&& call) {
    Memory memory(bytes), other(kMiB);
    if (buffer == Buffer::registered) {
      ASSERT_TRUE(register_by_use(memory));
    }
    memory.fill(21);
    other.fill(22);
    Stream gated = nullptr;
    ASSERT_EQ(cuStreamCreate(&gated, 0), kSuccess);
    ASSERT_EQ(madeUpCloseGate(gated), 0);
    std::thread synchronous([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
      EXPECT_EQ(cuMemcpyHtoD_v2(device_ + kBytes, other.data(), kMiB), kSuccess);
    });
    ASSERT_TRUE(eventually([] { return madeUpWaiting() == 1; }));
    std::thread copying([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
      EXPECT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), bytes, stream_), kSuccess);
    });
    ASSERT_TRUE(eventually([] { return madeUpWaiting() == 2; }));
    call();
    ASSERT_EQ(madeUpOpenGate(gated), 0);
    synchronous.join();
    copying.join();
    ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
    EXPECT_TRUE(device_holds(bytes, 21));
    EXPECT_TRUE(Memory::holds(madeUpDeviceBytes(device_ + kBytes), kMiB, 22));
  }
  void let_wait() {
    Event done = nullptr;
    ASSERT_EQ(cuEventCreate(&done, 2), kSuccess);
    EXPECT_EQ(cuStreamWaitEvent(stream_, done, 0), kSuccess);
  }
  void capture() {
    void* graph = nullptr;
    EXPECT_EQ(cuStreamBeginCapture_v2(stream_, kCaptureRelaxed), kSuccess);
    EXPECT_EQ(cuStreamEndCapture(stream_, &graph), kSuccess);
  }
};

TEST_F(CudaWaits, AStreamWaitsForAnEventBesideARegisteredCopyThatWaits) {
  for (const std::size_t bytes : {kMiB, kBytes})
    beside_a_waiting_copy(Buffer::registered, bytes, [&] { let_wait(); });
}

TEST_F(CudaWaits, ACaptureBeginsBesideARegisteredCopyThatWaits) {
  for (const std::size_t bytes : {kMiB, kBytes})
    beside_a_waiting_copy(Buffer::registered, bytes, [&] { capture(); });
}

TEST_F(CudaWaits, AStreamWaitsForAnEventBesideALargeFreshCopyThatWaits) {
  beside_a_waiting_copy(Buffer::fresh, kBytes, [&] { let_wait(); });
}

/// A capture that another thread begins in the stream of a copy, or that the stream joins by an event, before
/// the nth call of the driver that the copy makes. Either has the other one before it: the copy is made, or
/// captured, and no capture is lost.
class CapturesBesideCopies : public CudaWaits {
 protected:
  enum class Reached { by_begin, by_event };

  static inline std::atomic<bool> begins_{false}, begun_{false};
  static inline thread_local int t_calls = 0;

  static void observe(const char*) {
    if (--t_calls != 0) return;
    begins_ = true;
    // It may have to wait for the copy.
    for (int i = 0; i < 20 && !begun_; ++i) ::usleep(1000);
  }

  /// The stream of the copies has become part of a capture that `origin` began.
  void begin(Stream origin, int mode) {
    ASSERT_EQ(cuStreamBeginCapture_v2(origin, mode), kSuccess);
    if (origin == stream_) return;
    ASSERT_EQ(cuEventRecord(event_, origin), kSuccess);
    ASSERT_EQ(cuStreamWaitEvent(stream_, event_, 0), kSuccess);
  }
  void* end(Stream origin) {
    void* graph = nullptr;
    if (origin != stream_) {
      EXPECT_EQ(cuEventRecord(event_, stream_), kSuccess);
      EXPECT_EQ(cuStreamWaitEvent(origin, event_, 0), kSuccess);
    }
    EXPECT_EQ(cuStreamEndCapture(origin, &graph), kSuccess);
    return graph;
  }

  struct Case {
    Reached reached;
    bool registered, busy;
    std::size_t bytes;
    int mode, nth;
  };

  void begin_before(const Case& now) {
    SCOPED_TRACE(std::to_string(now.nth) + (now.registered ? ", registered, " : ", ") +
                 (now.busy ? "busy, " : "") + std::to_string(now.bytes) +
                 (now.reached == Reached::by_event ? ", by an event" : ""));
    Memory memory(now.bytes);
    if (now.registered) {
      ASSERT_TRUE(register_by_use(memory));
    }
    begins_ = begun_ = false;
    void* graph = nullptr;
    std::atomic<bool> copied{false};
    const Stream origin = now.reached == Reached::by_event ? other_ : stream_;
    std::thread capturing([&] {
      EXPECT_EQ(cuCtxSetCurrent(context_), kSuccess);
      while (!begins_) ::usleep(100);
      begin(origin, now.mode);
      begun_ = true;
      while (!copied) ::usleep(100);
      graph = end(origin);
    });
    memory.fill(11);
    if (now.busy) {
      ASSERT_EQ(madeUpCloseGate(stream_), 0);
    }
    t_calls = now.nth;
    EXPECT_EQ(cuMemcpyHtoDAsync_v2(device_, memory.data(), now.bytes, stream_), kSuccess);
    t_calls = 0;
    begins_ = true;
    ASSERT_TRUE(eventually([&] { return begun_.load(); }));
    copied = true;
    capturing.join();
    if (now.busy) {
      ASSERT_EQ(madeUpOpenGate(stream_), 0);
    }
    ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
    ASSERT_NE(graph, nullptr);
    check(graph, memory);
  }

  void SetUp() override {
    CudaWaits::SetUp();
    if (IsSkipped()) return;
    ASSERT_EQ(cuStreamCreate(&other_, 1), kSuccess);
    ASSERT_EQ(cuEventCreate(&event_, 2), kSuccess);
    Memory warm(kBytes);
    ASSERT_TRUE(register_by_use(warm));
    madeUpAtCall(observe);
  }
  void TearDown() override { madeUpAtCall(nullptr); }

  void all(Reached reached) {
    for (const int mode : {kCaptureGlobal, kCaptureRelaxed})
      for (const bool registered : {true, false})
        for (const std::size_t bytes : {kMiB, kBytes})
          for (int nth = 1; nth <= 12; ++nth) begin_before({reached, registered, false, bytes, mode, nth});
  }
  /// Copies that return before the stream has come to them.
  void all_on_a_busy_stream(Reached reached) {
    for (const int mode : {kCaptureGlobal, kCaptureRelaxed})
      for (const bool registered : {true, false})
        for (int nth = 1; nth <= 12; ++nth) begin_before({reached, registered, true, kMiB, mode, nth});
  }

  Stream other_ = nullptr;
  Event event_ = nullptr;

  /// A launch copies what the memory holds then, or nothing.
  void check(void* graph, Memory& memory) {
    void* launched = nullptr;
    ASSERT_EQ(cuGraphInstantiateWithFlags(&launched, graph, 0), kSuccess);
    for (int value = 1; value < 5; ++value) {
      memory.fill(value);
      // It would be registered by these.
      ASSERT_EQ(cuMemcpyHtoD_v2(device_ + kBytes, memory.data(), memory.bytes()), kSuccess);
      std::memset(madeUpDeviceBytes(device_), 99, memory.bytes());
      ASSERT_EQ(cuGraphLaunch(launched, stream_), kSuccess);
      ASSERT_EQ(cuStreamSynchronize(stream_), kSuccess);
      EXPECT_TRUE(device_holds(memory.bytes(), value) || device_holds(memory.bytes(), 99));
    }
  }
};

TEST_F(CapturesBesideCopies, AreNeverLost) { all(Reached::by_begin); }
TEST_F(CapturesBesideCopies, AreNeverLostThatTheStreamJoins) { all(Reached::by_event); }
TEST_F(CapturesBesideCopies, AreNeverLostOnABusyStream) { all_on_a_busy_stream(Reached::by_begin); }
TEST_F(CapturesBesideCopies, AreNeverLostThatABusyStreamJoins) { all_on_a_busy_stream(Reached::by_event); }

}  // namespace
}  // namespace pinion::test
