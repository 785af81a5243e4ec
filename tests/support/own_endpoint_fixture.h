// Tests of an endpoint over a made libfabric: Pinion runs, and the endpoint reaches itself. Memory of two
// parts: transfers go from the first to the second.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

#include "pinion/pinion.h"
#include "temporary_directory.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::test {

struct CountedOperation : transfer::Operation {
  void done(const Error& error) override { ++calls, code = error.code; }
  int calls = 0, code = 0;
};

class OwnEndpointFixture : public ::testing::Test {
 protected:
  static constexpr std::size_t kBytes = 4096;

  void SetUp() override {
    ::unsetenv("PINION");
    ASSERT_EQ(pinion_start("retention=on-demand"), 0) << pinion_last_error();
    memory_ = static_cast<char*>(
        ::mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    EXPECT_EQ(pinion_stop(), 0);
    ::munmap(memory_, 2 * kBytes);
  }

  transfer::FabricEndpointOptions options() const {
    transfer::FabricEndpointOptions options;
    options.job = {0, 1, directory_.path() + "/job"};
    return options;
  }
  transfer::LocalMemory mine() const { return {memory_, kBytes, nullptr}; }
  transfer::RemoteMemory target() const { return {reinterpret_cast<std::uintptr_t>(memory_ + kBytes), 1}; }

  TemporaryDirectory directory_;
  char* memory_ = nullptr;
};

}  // namespace pinion::test
