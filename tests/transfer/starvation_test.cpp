// An endpoint out of memory as its peers end, over a libfabric that is made up: all operations end, once
// each.
#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/made_fabric.h"
#include "support/own_endpoint_fixture.h"
#include "support/starvation.h"

namespace pinion::transfer {
namespace {

using test::MadeFabric;
using test::Starvation;

constexpr std::size_t kPuts = 100;

using Counted = test::CountedOperation;

struct Ends : MessageHandler {
  void message(Peer, const void*, std::size_t) override {}
  void gone(Peer) override { ++gones; }
  int gones = 0;
};

class TransferStarvation : public test::OwnEndpointFixture {
 protected:
  void SetUp() override {
    OwnEndpointFixture::SetUp();
    FabricEndpointResult made = open_fabric_endpoint(fabric_.library(), options());
    ASSERT_FALSE(made.error) << made.error.message;
    endpoint_ = std::move(made.endpoint);
    endpoint_->handle(2, ends_);
    ASSERT_FALSE(endpoint_->connect());
  }
  void TearDown() override {
    fabric_.refuse = [](const std::string&) { return 0; };
    endpoint_.reset();
    OwnEndpointFixture::TearDown();
  }

  /// The provider's call that fails.
  void fail(const char* name, int code) {
    fabric_.refuse = [name, code](const std::string& call) { return call == name ? code : 0; };
  }
  Error put(Counted& operation, std::size_t bytes = kBytes) {
    return endpoint_->put(0, {memory_, bytes, nullptr}, target(), operation);
  }
  void put_all() {
    for (Counted& each : puts_) ASSERT_FALSE(put(each));
  }
  /// Makes progress without memory until all have ended.
  void expect_all_end(int code) {
    const auto ended = [&] {
      std::size_t count = 0;
      for (const Counted& each : puts_) count += each.calls > 0;
      return count == puts_.size();
    };
    {
      const Starvation starvation(0);
      for (const Time end = monotonic_now() + 60 * kSecond; !ended() && monotonic_now() < end;)
        if (endpoint_->progress() == 0) endpoint_->wait(kMillisecond);
    }
    for (const Counted& each : puts_) {
      EXPECT_EQ(each.calls, 1);
      EXPECT_EQ(each.code, code);
    }
  }

  MadeFabric fabric_{
      std::vector<MadeFabric::Provider>{{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}}};
  Ends ends_;
  std::unique_ptr<FabricEndpoint> endpoint_;
  std::vector<Counted> puts_ = std::vector<Counted>(kPuts);
};

TEST_F(TransferStarvation, APeerEnds) {
  fail("fi_cq_read", -FI_EAGAIN);
  put_all();
  fabric_.refuse = [](const std::string& call) {
    return call == "fi_sendmsg" ? -FI_ECONNRESET : call == "fi_cq_read" ? -FI_EAGAIN : 0;
  };
  EXPECT_EQ(endpoint_->send(0, 2, "text", 4, nullptr).code, ECONNRESET);
  expect_all_end(ECONNRESET);
  EXPECT_EQ(ends_.gones, 1);
}

TEST_F(TransferStarvation, OperationsFail) {
  fail("completion", -FI_EIO);
  put_all();
  expect_all_end(EIO);
}

TEST_F(TransferStarvation, TheProviderRefusesOperations) {
  fail("fi_writemsg", -FI_EIO);
  {
    const Starvation starvation(0);
    for (Counted& each : puts_) {
      // Without memory, operations wait for others at most.
      while (const Error error = put(each)) {
        ASSERT_EQ(error.code, EAGAIN) << error.message;
        if (endpoint_->progress() == 0) endpoint_->wait(kMillisecond);
      }
    }
  }
  expect_all_end(EIO);
}

TEST_F(TransferStarvation, EmptyOperationsEnd) {
  {
    const Starvation starvation(0);
    for (Counted& each : puts_)
      while (put(each, 0)) endpoint_->progress();
  }
  expect_all_end(0);
}

TEST_F(TransferStarvation, TheQueueBreaks) {
  fail("fi_cq_read", -FI_EAGAIN);
  put_all();
  fail("fi_cq_read", -FI_EOPBADSTATE);
  expect_all_end(EIO);
}

}  // namespace
}  // namespace pinion::transfer
#endif
