// Device fabric over each software provider of the real libfabric that is here. Their keys at work:
// fabric_operations_test.cpp; modes and faults: fabric_device_test.cpp.
#include <gtest/gtest.h>
#include <signal.h>

#include <cctype>
#include <string>
#include <vector>

#include "device/fabric/fabric.h"
#include "device/make.h"
#include "support/device_battery.h"
#include "support/pinned_memory.h"
#include "support/test_name.h"

namespace pinion {
namespace {

using namespace test;

std::vector<DeviceMaker> makers() {
  std::vector<DeviceMaker> makers;
  for (const char* provider : {"tcp;ofi_rxm", "udp;ofi_rxd", "sockets", "shm", "net"}) {
    makers.push_back({test_name(provider),
                      [device = std::string("fabric:") + provider] { return make_device(device, ""); }});
  }
  return makers;
}
INSTANTIATE_TEST_SUITE_P(Fabric, PinningDevice, ::testing::ValuesIn(makers()), name_of);

// Handlers of libraries below Debian's libfabric would end the program in their own way.
TEST(FabricProviders, LoadingThemLeavesSignalHandlersAlone) {
  struct sigaction before[NSIG];
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, nullptr, &before[signal]);
  const FabricProviders found = fabric_providers();
  if (found.error) GTEST_SKIP() << found.error.message;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0) continue;
    EXPECT_EQ(now.sa_sigaction, before[signal].sa_sigaction) << "signal " << signal;
  }
}

TEST(FabricProviders, WhatIsListedCanBeOpened) {
  const FabricProviders found = fabric_providers();
  if (found.error) GTEST_SKIP() << found.error.message;
  for (const FabricProvider& provider : found.providers) {
    if (!provider.rma) continue;
    const DeviceResult made = make_device("fabric:" + provider.name, "");
    EXPECT_FALSE(made.error) << made.error.message;
    if (made.error) continue;
    EXPECT_NE(made.device->description().find(provider.name), std::string::npos);
    EXPECT_EQ(made.device->description().find("pins nothing") == std::string::npos, provider.pins);
  }
}

TEST(FabricProviders, OpeningAndClosingLeaksNoDescriptor) {
  const auto open_and_close = [] {
    const DeviceResult made = make_device("fabric", "");
    if (made.error) return false;
    Memory memory(kMiB);
    EXPECT_FALSE(made.device->register_range(memory.range(), Access::all, Actor::application).error);
    return true;
  };
  if (!open_and_close()) GTEST_SKIP() << "no provider is here";
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 10; ++i) open_and_close();
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace pinion
