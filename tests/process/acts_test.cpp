// Pinion's part in a process's registrations by its options and its node's ports, in this process's own
// engine.
#include "lease/acts.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "device/node_devices.h"
#include "process/engine.h"
#include "runlog/analysis.h"
#include "support/fake_device.h"
#include "support/in_child.h"
#include "support/temporary_directory.h"

namespace pinion {
namespace {

namespace fs = std::filesystem;

class ActsTest : public ::testing::Test {
 protected:
  ActsTest() { ::setenv("PINION_TEST_INFINIBAND", (root() / "infiniband").c_str(), 1); }
  ~ActsTest() override {
    ::unsetenv("PINION_TEST_INFINIBAND");
    Engine::stop();
  }

  fs::path root() const { return directory_.path(); }
  void make_device_file() {
    fs::create_directories(root() / "infiniband/dev");
    std::ofstream(root() / "infiniband/dev/uverbs0");
  }
  void make_port(const std::string& device, const std::string& port, const std::string& state) {
    const fs::path of = root() / "infiniband" / device / "ports" / port;
    fs::create_directories(of);
    std::ofstream(of / "state") << state << "\n";
    std::ofstream(of / "link_layer") << "InfiniBand\n";
  }
  Options options(const std::string& text = "") {
    Options options;
    EXPECT_FALSE(parse_options(options, text));
    options.log = root() / "logs";
    return options;
  }
  static void start(const Options& options) {
    const Error error = Engine::start(options, {0, 1, 1}, "test");
    ASSERT_FALSE(error) << error.message;
  }
  /// Acquires as a front does.
  static Transfer acquire(int domain, Range range) {
    Transfer transfer;
    EXPECT_TRUE(Engine::running()->lease_path().lease(
        *this_thread(), domain, {ticks_now(), 1, CallKind::send}, range, Access::write, transfer));
    return transfer;
  }
  static void transfer(int domain, Range range) {
    Transfer made = acquire(domain, range);
    Engine::running()->lease_path().release(*this_thread(), made);
  }
  runlog::Report report() {
    Engine::stop();
    runlog::Report report;
    const Error error = runlog::analyse({(root() / "logs").string()}, report);
    EXPECT_FALSE(error) << error.message;
    return report;
  }

  TemporaryDirectory directory_;
  std::vector<char> memory_ = std::vector<char>(64 * page_size());
  const Range range_ = Range::of(memory_.data(), memory_.size());
};

// A library without its cache would register GPU memory for each message.
TEST_F(ActsTest, CachesAboveStayOnBesideAGpu) {
  make_device_file();
  make_port("mlx5_0", "1", "4: ACTIVE");
  EXPECT_EQ(gpu_file(), "");
  EXPECT_TRUE(may_switch_caches_off(options()));
  EXPECT_FALSE(may_switch_caches_off(options("front=mpi")));
  for (const char* name : {"nvidiactl", "kfd"}) {
    const fs::path file = root() / "infiniband/gpu" / name;
    fs::create_directories(file.parent_path());
    std::ofstream{file};
    EXPECT_EQ(gpu_file(), file);
    EXPECT_FALSE(may_switch_caches_off(options()));
    EXPECT_FALSE(may_switch_caches_off(options("front=verbs")));
    EXPECT_TRUE(may_act_below(options())) << "host memory is met nevertheless";
    fs::remove(file);
  }
  EXPECT_TRUE(may_switch_caches_off(options()));
}

TEST_F(ActsTest, PortsAreReadAsTheKernelListsThem) {
  EXPECT_TRUE(node_ports().empty());
  make_port("mlx5_1", "1", "4: ACTIVE");
  make_port("mlx5_0", "1", "1: DOWN");
  const std::vector<NodePort> ports = node_ports();
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].device, "mlx5_0");
  EXPECT_FALSE(ports[0].active());
  EXPECT_EQ(ports[1].number, "1");
  EXPECT_EQ(ports[1].link_layer, "InfiniBand");
  EXPECT_TRUE(ports[1].active());
}

TEST_F(ActsTest, ADeviceWithoutAFileThatOpensIsNotReached) {
  make_port("mlx5_0", "1", "4: ACTIVE");
  EXPECT_EQ(closed_to_programs(), "there is no /dev/infiniband/uverbs* here");
  EXPECT_FALSE(may_act_below(options()));
  EXPECT_TRUE(may_act_below(options("front=verbs")));
  make_device_file();
  EXPECT_EQ(closed_to_programs(), "");
  EXPECT_TRUE(may_act_below(options()));
  fs::permissions(root(), fs::perms(0755));
  fs::permissions(root() / "infiniband/dev/uverbs0", fs::perms::none);
  test::in_child([] {
    if (::geteuid() == 0) {
      ASSERT_EQ(::setuid(65534), 0);
    }
    EXPECT_EQ(closed_to_programs(), "/dev/infiniband/uverbs* may not be opened by this user");
    EXPECT_FALSE(reaches_nic());
  });
}

TEST_F(ActsTest, BelowLibrariesWhereAPortIsActiveAndNoDeviceWasGiven) {
  make_device_file();
  EXPECT_FALSE(may_act_below(options()));
  make_port("mlx5_0", "1", "2: INIT");
  EXPECT_FALSE(may_act_below(options()));
  EXPECT_TRUE(may_act_below(options("front=verbs")));
  make_port("mlx5_0", "2", "4: ACTIVE");
  EXPECT_TRUE(may_act_below(options()));
  EXPECT_FALSE(may_act_below(options("device=pin")));
  EXPECT_FALSE(may_act_below(options("front=mpi")));
}

TEST_F(ActsTest, ByDefaultTransfersAreMeasured) {
  start(options());
  for (int i = 0; i < 3; ++i) transfer(0, range_);
  const runlog::Report r = report();
  EXPECT_EQ(r.acts, Acts::measured);
  EXPECT_EQ(r.retention, "observe");
  EXPECT_EQ(r.device, kMeasuredOnly);
  EXPECT_EQ(r.acquires.observed, 3u);
  EXPECT_EQ(r.registrations, 0u);
  EXPECT_EQ(r.registered().peak, 0u);
  EXPECT_EQ(r.registered().leave_pinned_peak, range_.to_pages().bytes());
}

TEST_F(ActsTest, AnExplicitDeviceRegisters) {
  start(options("device=emulated,nic=none"));
  EXPECT_FALSE(Engine::running()->act_below());
  transfer(0, range_);
  const runlog::Report r = report();
  EXPECT_EQ(r.acts, Acts::pinned);
  EXPECT_EQ(r.retention, "helper");
  EXPECT_EQ(r.acquires.misses, 1u);
}

TEST_F(ActsTest, ALibrarysFirstRegistrationTurnsTheProcess) {
  start(options("retention=leave-pinned"));
  LeasePath& leases = Engine::running()->lease_path();
  Transfer early = acquire(0, range_);
  transfer(0, range_);
  EXPECT_FALSE(leases.acts_below());
  EXPECT_TRUE(Engine::running()->act_below());
  EXPECT_TRUE(Engine::running()->act_below());
  EXPECT_TRUE(leases.acts_below());
  // Below, the program's protection domain is a domain of the registry.
  Error error;
  const int domain = Engine::running()->domains().add(std::make_unique<test::FakeDevice>(), error);
  ASSERT_FALSE(error) << error.message;
  const Range half = {range_.begin, range_.begin + range_.bytes() / 2};
  for (int i = 0; i < 2; ++i) transfer(domain, half);
  leases.release(*this_thread(), early);  // of an operation that was under way
  const runlog::Report r = report();
  EXPECT_EQ(r.acts, Acts::verbs);
  EXPECT_EQ(r.retention, "leave-pinned");
  EXPECT_EQ(r.device, kBelowLibraries);
  EXPECT_EQ(r.acquires.observed, 2u);
  EXPECT_EQ(r.acquires.misses, 1u);
  EXPECT_EQ(r.acquires.hits, 1u);
  EXPECT_EQ(r.registered().peak, half.to_pages().bytes());
}

TEST_F(ActsTest, FrontMpiStaysMeasured) {
  start(options("front=mpi"));
  EXPECT_FALSE(Engine::running()->act_below());
  transfer(0, range_);
  EXPECT_EQ(report().acts, Acts::measured);
}

}  // namespace
}  // namespace pinion
