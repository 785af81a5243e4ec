// The data of a library that is unloaded, which the dynamic linker unmaps by system calls of its own: by
// contents, in a program that lacks the preload.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <memory>
#include <optional>
#include <thread>

#include "support/gate.h"
#include "support/transfer_engine.h"

namespace pinion::test {
namespace {

constexpr std::uint64_t kOld = 1, kNew = 2;

class Library {
 public:
  Library() : handle_(::dlopen(PINION_TEST_PLUGIN, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) std::abort();
    const auto begin = reinterpret_cast<Address>(::dlsym(handle_, "plugin_buffer"));
    const auto bytes = *static_cast<std::size_t*>(::dlsym(handle_, "plugin_buffer_bytes"));
    buffer_ = {page_ceil(begin), page_floor(begin + bytes)};
    fill(buffer_, kOld);
  }
  /// The whole pages of its buffer.
  Range buffer() const { return buffer_; }
  void when_it_leaves(void (*call)()) {
    *reinterpret_cast<void (**)()>(::dlsym(handle_, "plugin_leaves")) = call;
  }
  void unload() { ASSERT_EQ(::dlclose(handle_), 0); }

 private:
  void* const handle_;
  Range buffer_;
};

class MemoryDlclose : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!EngineDevice::available()) GTEST_SKIP() << EngineDevice::kMissing;
  }
  void TearDown() override {
    if (memory_.empty()) return;
    ::munmap(reinterpret_cast<void*>(memory_.begin), memory_.bytes());
  }
  /// Other memory where the library's was.
  void expect_gone(Range buffer) {
    void* const at = reinterpret_cast<void*>(buffer.begin);
    ASSERT_EQ(::mmap(at, buffer.bytes(), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
              at)
        << "the library is there still";
    memory_ = buffer;
    fill(memory_, kNew);
  }

  Library library_;
  Range memory_;
  Wire wire_{std::size_t{1} << 18};
};

TEST_F(MemoryDlclose, AStaleRegistrationIsSeenInTheContents) {
  RingDevice device;
  const Registration stale = device.register_range(library_.buffer(), Access::all, Actor::application);
  ASSERT_FALSE(stale.error);
  library_.unload();
  expect_gone(library_.buffer());
  ASSERT_EQ(device.send(stale.key, memory_, wire_, 0), 0);
  EXPECT_TRUE(holds(wire_.as<std::uint64_t>(), memory_, kOld));
  EXPECT_FALSE(device.deregister(stale.key, Actor::application));
}

TEST_F(MemoryDlclose, AnIdleRegistrationGoes) {
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  expect_transfers(ring, ring.acquire(library_.buffer()), wire_, library_.buffer(), kOld);
  library_.unload();
  expect_gone(library_.buffer());
  expect_transfers(ring, ring.acquire(memory_), wire_, memory_, kNew);
}

TEST_F(MemoryDlclose, ALeaseIsNotShared) {
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  TransferLease holder = ring.acquire(library_.buffer());
  ASSERT_TRUE(holder);
  library_.unload();
  expect_gone(library_.buffer());
  expect_transfers(ring, ring.acquire(memory_), wire_, memory_, kNew);
  holder.release();
  fill(memory_, kNew);
  expect_transfers(ring, ring.acquire(memory_), wire_, memory_, kNew);
}

TEST_F(MemoryDlclose, ARegistrationUnderWayIsMadeAnew) {
  TransferEngine ring(TransferEngine::options(RetentionKind::leave_pinned));
  Gate gate;
  ring.device().at = [&](TransferDevice::Moment moment, Range pages, Actor) {
    if (moment == TransferDevice::Moment::registered && pages.overlaps(library_.buffer())) gate.pass();
  };
  gate.arm();
  TransferLease lease;
  std::thread registering([&] { lease = ring.acquire(library_.buffer()); });
  EXPECT_TRUE(gate.wait_reached()) << "the acquire has not called the device";
  library_.unload();
  expect_gone(library_.buffer());
  gate.open();
  registering.join();
  expect_transfers(ring, lease, wire_, memory_, kNew);
}

std::optional<TransferEngine> begun;
Range leaving;
int error_of_leaving = 0;

// The engine may start when the library is on its way out.
TEST_F(MemoryDlclose, ARunThatBeginsInItKeepsNothingOfIt) {
  leaving = library_.buffer();
  library_.when_it_leaves([] {
    begun.emplace(TransferEngine::options(RetentionKind::leave_pinned));
    error_of_leaving = begun->acquire(leaving).error().code;
  });
  library_.unload();
  expect_gone(leaving);
  EXPECT_EQ(error_of_leaving, 0);  // the memory was there still
  expect_transfers(*begun, begun->acquire(memory_), wire_, memory_, kNew);
  begun.reset();
}

}  // namespace
}  // namespace pinion::test
