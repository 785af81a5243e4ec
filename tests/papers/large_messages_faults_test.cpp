// Large messages over a libfabric that is made up: each call of the provider fails once while a message is
// under way. Its requests end, contents are right or an error says otherwise, and nothing is left.
#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "papers/messages/large_messages.h"
#include "papers/messages/protocols.h"
#include "pinion/pinion.h"
#include "support/made_fabric.h"
#include "support/temporary_directory.h"

namespace pinion::transfer {
namespace {

using test::MadeFabric;

constexpr std::size_t kChunk = 4096;
constexpr std::size_t kBytes = 5 * kChunk + 123;

class LargeMessagesFaults : public ::testing::TestWithParam<Protocol> {
 protected:
  void SetUp() override {
    ::unsetenv("PINION");
    ASSERT_EQ(pinion_start("retention=on-demand"), 0) << pinion_last_error();
  }
  void TearDown() override { EXPECT_EQ(pinion_stop(), 0); }

  /// Both ends of a message are this process. The call with the number `failing` fails. Returns its name;
  /// empty: there is none.
  std::string send_with_fault(int failing, int mode = FI_MR_VIRT_ADDR | FI_MR_LOCAL);

  TemporaryDirectory directory_;
  int errors_ = 0;
};

/// Within 20 seconds, which is longer than any doubt about a peer lasts.
bool ends(LargeMessages& messages, FabricEndpoint& endpoint, Request& request) {
  for (const Time end = monotonic_now() + 20 * kSecond; monotonic_now() < end;) {
    if (messages.test(request)) return true;
    endpoint.wait(kMillisecond);
  }
  return false;
}

std::string LargeMessagesFaults::send_with_fault(int failing, int mode) {
  MadeFabric fabric({{"tcp", mode, 20, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  fabric.checks_raw_keys = (mode & FI_MR_RAW) != 0;
  FabricEndpointOptions options;
  options.job = {0, 1, directory_.path() + "/job"};
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options);
  EXPECT_FALSE(made.error) << made.error.message;
  LargeMessages::Result opened = LargeMessages::open(*made.endpoint, {.protocol = GetParam(),
                                                                      .bounce_below = kChunk,
                                                                      .pipeline_from = kChunk,
                                                                      .piece_bytes = 2 * kChunk,
                                                                      .chunk_bytes = kChunk,
                                                                      .chunks = 8});
  EXPECT_FALSE(opened.error) << opened.error.message;
  EXPECT_FALSE(made.endpoint->connect());

  int calls = 0;
  std::string name;
  fabric.refuse = [&](const std::string& call) {
    // A reliable provider delivers what it has acknowledged.
    if (call == "fi_close" || call == "fi_cq_readerr" || call == "receipt" || calls++ != failing) return 0;
    name = call;
    return -FI_EIO;
  };
  std::vector<char> data(kBytes), memory(kBytes);
  for (std::size_t at = 0; at < kBytes; ++at) data[at] = static_cast<char>(at * 13 + at / 256);
  Request send, receive;
  opened.messages->receive(0, memory.data(), kBytes, receive);
  opened.messages->send(0, data.data(), kBytes, send);
  for (Request* const each : {&send, &receive}) {
    EXPECT_TRUE(ends(*opened.messages, *made.endpoint, *each)) << "a request never ends after " << name;
    if (each->done() && each->error()) ++errors_;
  }
  if (receive.done() && !receive.error()) {
    EXPECT_EQ(memory, data) << "other contents after " << name;
  }
  if (name.empty()) {
    EXPECT_FALSE(send.error()) << send.error().message;
    EXPECT_FALSE(receive.error()) << receive.error().message;
  }
  fabric.refuse = [](const std::string&) { return 0; };
  opened.messages->close();
  const Error closed = made.endpoint->close();
  EXPECT_FALSE(closed) << closed.message;
  return name;
}

TEST_P(LargeMessagesFaults, AnyCallMayFailAndTheMessageEnds) {
  // An empty look at the queue fails like a full one: beyond so many calls, all have failed.
  constexpr int kMost = 30;
  int failures = 0;
  for (int failing = 0; failing < kMost; ++failing) failures += !send_with_fault(failing).empty();
  EXPECT_GT(failures, 10);
  EXPECT_GT(errors_, 5);
  EXPECT_EQ(send_with_fault(1'000'000), "");
}

TEST_P(LargeMessagesFaults, KeysOfAnyLengthReachThePeer) {
  constexpr int kRaw = FI_MR_RAW | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_LOCAL;
  EXPECT_EQ(send_with_fault(1'000'000, kRaw), "");
  EXPECT_EQ(errors_, 0);
  bool maps = false;
  for (int failing = 0; failing < 20; ++failing) maps |= send_with_fault(failing, kRaw) == "fi_mr_map_raw";
  EXPECT_TRUE(maps);
}

INSTANTIATE_TEST_SUITE_P(Each, LargeMessagesFaults,
                         ::testing::Values(Protocol::automatic, Protocol::bounce, Protocol::rendezvous,
                                           Protocol::pipeline, Protocol::prepared),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace pinion::transfer
#endif
