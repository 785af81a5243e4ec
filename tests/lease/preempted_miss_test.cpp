// A miss whose thread loses its core between device calls: all of that is listed as preempted.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "process/engine.h"
#include "support/contend.h"

namespace pinion {
namespace {

constexpr Duration kLost = 2 * kMillisecond;

long forced_switches() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

/// Its first call sleeps. When that is over, others get the core, for at least kLost.
class Device final : public pinion::Device {
 public:
  const char* name() const override { return "fake"; }
  std::string description() const override { return "registers nothing"; }
  DeviceCapabilities capabilities() const override { return {}; }
  Registration register_range(Range, Access access, Actor) override {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    RegistrationKey key;
    key.handle = 1;
    return {{}, key, access};
  }
  Error deregister(const RegistrationKey&, Actor) override { return {}; }
  void abandon_after_fork() override {}
  // The registry asks once the call's end is noted.
  Duration least_time(bool registration, std::uint32_t) const override {
    if (!registration || asked_) return 0;
    asked_ = true;
    const long before = forced_switches();
    const Time began = monotonic_now();
    while (forced_switches() == before || monotonic_now() - began < kLost) {
    }
    return 0;
  }

 private:
  mutable bool asked_ = false;
};

TEST(PreemptedMiss, ACoreThatIsLostBetweenDeviceCallsIsListed) {
  Options options;
  options.device = "pin";
  options.retention = RetentionKind::leave_pinned;
  Error error = Engine::start(options, {}, "test");
  ASSERT_FALSE(error) << error.message;
  Engine* const engine = Engine::running();
  const int domain = engine->domains().add(std::make_unique<Device>(), error);
  ASSERT_FALSE(error) << error.message;
  constexpr std::size_t kBytes = 64 << 10;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto begin = reinterpret_cast<Address>(memory);
  Duration took = 0;
  test::contend([&] {
    ThreadContext* const thread = this_thread();
    Transfer made;
    const Time began = monotonic_now();
    EXPECT_TRUE(engine->lease_path().lease(*thread, domain, {}, {begin, begin + kBytes}, Access::read, made));
    took = monotonic_now() - began;
    engine->lease_path().release(*thread, made);
  });
  const auto listed = static_cast<Duration>(engine->counters().all().preempted_ns);
  EXPECT_GE(listed, kLost / 2);
  EXPECT_LE(listed, took);
  Engine::stop();
  ::munmap(memory, kBytes);
}

}  // namespace
}  // namespace pinion
