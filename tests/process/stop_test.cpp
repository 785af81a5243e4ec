// A process that is asked to stop (`pinion stop`) keeps nothing registered, and its transfers go on.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "node/stop_request.h"
#include "process/engine.h"
#include "support/eventually.h"

namespace pinion {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The first test asks. From then on the process is stopped.
class StopTest : public ::testing::TestWithParam<RetentionKind> {
 protected:
  void SetUp() override {
    Options options;
    options.retention = GetParam();
    options.lru_size = 64 * kMiB;
    options.device = "emulated";
    options.nic = "none";
    const Error error = Engine::start(options, {}, "test");
    ASSERT_FALSE(error) << error.message;
    void* const memory =
        ::mmap(nullptr, 4 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    memory_ = Range::of(memory, 4 * kMiB);
  }
  void TearDown() override {
    Engine::stop();
    ::munmap(reinterpret_cast<void*>(memory_.begin), memory_.bytes());
    const std::string end = "-" + std::to_string(::getpid()) + ".0";
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      EXPECT_FALSE(file.path().filename().string().starts_with("pinion-stop.") &&
                   file.path().filename().string().ends_with(end));
  }

  LeasePath& lease_path() { return Engine::running()->lease_path(); }
  std::size_t registered() { return Engine::running()->domains().registered_bytes(); }
  void acquire(std::size_t number, Transfer& transfer) {
    const Address begin = memory_.begin + 2 * number * kMiB;
    EXPECT_TRUE(lease_path().lease(*this_thread(), 0, {}, {begin, begin + kMiB}, Access::read, transfer,
                                   Refusal::report));
  }
  void release(Transfer& transfer) { lease_path().release(*this_thread(), transfer); }
  static bool has_answered(std::uint64_t bytes) {
    const auto answer = node::stop_answer(::getpid());
    return answer && answer->registered == bytes;
  }

 private:
  Range memory_{};
};

TEST_P(StopTest, IdleRegionsGoAtOnceAndOthersWithTheirLeases) {
  Transfer idle, used;
  acquire(0, idle);
  acquire(1, used);
  release(idle);
  ASSERT_FALSE(node::ask_to_stop(::getpid()));
  EXPECT_TRUE(test::eventually([] { return has_answered(kMiB); }));
  EXPECT_EQ(registered(), kMiB);
  release(used);
  EXPECT_EQ(registered(), 0u);
  EXPECT_TRUE(test::eventually([] { return has_answered(0); }));
  for (int use = 0; use < 20; ++use) {
    Transfer again;
    acquire(use % 2, again);
    EXPECT_EQ(registered(), kMiB);
    release(again);
    EXPECT_EQ(registered(), 0u);
  }
}

TEST_P(StopTest, ALaterRunInTheProcessIsStoppedToo) {
  ASSERT_FALSE(node::ask_to_stop(::getpid()));
  ASSERT_TRUE(test::eventually([] { return has_answered(0); }));
  Engine::stop();
  const Options options = [] {
    Options some;
    some.device = "emulated";
    some.nic = "none";
    return some;
  }();
  ASSERT_FALSE(Engine::start(options, {}, "test"));
  EXPECT_TRUE(test::eventually([this] { return lease_path().stopped(); }));
}

INSTANTIATE_TEST_SUITE_P(All, StopTest,
                         testing::Values(RetentionKind::on_demand, RetentionKind::leave_pinned,
                                         RetentionKind::lru, RetentionKind::helper),
                         [](const auto& kind) {
                           std::string name = to_string(kind.param);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace pinion
