// An endpoint over a libfabric that is made up: each call of the provider fails once, and strangers' messages
// arrive. Transfers between processes: transfer_endpoint_test.cpp.
#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pinion/pinion.h"
#include "support/made_fabric.h"
#include "support/own_endpoint_fixture.h"
#include "transfer/bootstrap/bootstrap.h"
#include "transfer/endpoint/message.h"

namespace pinion::transfer {
namespace {

using test::MadeFabric;

using Counted = test::CountedOperation;

struct Notes : MessageHandler {
  void message(Peer, const void* payload, std::size_t bytes) override {
    texts.emplace_back(static_cast<const char*>(payload), bytes);
  }
  void gone(Peer) override { ++lost; }  // once a message to itself was lost
  int lost = 0;
  std::vector<std::string> texts;
};

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

class TransferEndpointFaults : public test::OwnEndpointFixture {
 protected:
  /// A put, a get and a message, to their ends. The first error.
  Error use(FabricEndpoint& endpoint, Notes& notes) {
    std::memset(memory_, 7, kBytes);
    std::memset(memory_ + kBytes, 0, kBytes);
    Counted put, got, sent;
    Error first;
    int posted = 0;
    const auto note = [&](const Error& error) {
      if (!error) ++posted;
      if (error && !first) first = error;
      return !error;
    };
    const bool putting = note(endpoint.put(0, mine(), target(), put));
    const bool getting = note(endpoint.get(0, mine(), target(), got));
    const bool sending = note(endpoint.send(0, 2, "text", 4, &sent));
    // The longest: an error whose cause may be the peer's end.
    for (const Time end = monotonic_now() + 20 * kSecond;
         put.calls + got.calls + sent.calls < posted && monotonic_now() < end;)
      if (endpoint.progress() == 0) endpoint.wait(kMillisecond);
    endpoint.progress();
    EXPECT_EQ(put.calls, int(putting));
    EXPECT_EQ(got.calls, int(getting));
    EXPECT_EQ(sent.calls, int(sending));
    for (const Counted* each : {&put, &got, &sent})
      if (each->code != 0 && !first) first = Error::make(each->code, "completed with an error");
    if (!first) {
      EXPECT_EQ(std::memcmp(memory_, memory_ + kBytes, kBytes), 0);
    }
    return first;
  }
};

TEST_F(TransferEndpointFaults, AnyCallMayFailAndLeavesNothing) {
  const std::size_t files = open_files();
  int failing = 0, failures = 0;
  for (bool failed = true; failed; ++failing) {
    for (const int mode : {0, int{FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR}}) {
      MadeFabric fabric({{"tcp", mode, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
      int calls = 0;
      std::string name;
      failed = false;
      fabric.refuse = [&](const std::string& call) {
        if (call == "fi_close" || call == "fi_cq_readerr" || calls++ != failing) return 0;
        failed = true;
        name = call;
        return -FI_EIO;
      };
      FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
      Error error = made.error;
      Notes notes;
      if (made.endpoint) {
        made.endpoint->handle(2, notes);
        error = made.endpoint->connect();
        if (!error) error = use(*made.endpoint, notes);
        const Error closed = made.endpoint->close();
        EXPECT_FALSE(closed) << name << ": " << closed.message;
      }
      // Otherwise the call is made again, or nothing was under way.
      const bool ends = name != "fi_cq_open" && name != "completion" && name != "receipt" &&
                        name != "fi_recv" && name != "fi_cq_read";
      if (failed && ends) {
        EXPECT_NE(error.code, 0) << name;
      }
      if (!failed) {
        EXPECT_EQ(error.code, 0) << error.message;
        EXPECT_EQ(notes.texts, std::vector<std::string>{"text"});
      }
      failures += failed;
      made.endpoint.reset();
    }
    EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/job"));
  }
  EXPECT_GT(failures, 30);
  EXPECT_EQ(open_files(), files);
}

TEST_F(TransferEndpointFaults, ALostMessageEndsItsSender) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  Notes notes;
  made.endpoint->handle(2, notes);
  ASSERT_FALSE(made.endpoint->connect());
  bool fails = true;
  fabric.refuse = [&](const std::string& call) {
    return call == "receipt" && std::exchange(fails, false) ? -FI_ETRUNC : 0;
  };
  // The last message for now: only an answer to a question shows the gap.
  ASSERT_FALSE(made.endpoint->send(0, 2, "text", 4, nullptr));
  for (const Time end = monotonic_now() + 60 * kSecond; notes.lost == 0 && monotonic_now() < end;)
    if (made.endpoint->progress() == 0) made.endpoint->wait(kMillisecond);
  EXPECT_EQ(notes.lost, 1);
  EXPECT_TRUE(notes.texts.empty());
  EXPECT_EQ(made.endpoint->send(0, 2, "more", 4, nullptr).code, ECONNRESET);
}

TEST_F(TransferEndpointFaults, AnUnknownProviderIsNamed) {
  MadeFabric fabric({{"tcp;ofi_rxm"}, {"udp", 0, 8, FI_MSG}});
  for (const char* unknown : {"gni", "udp"}) {
    FabricEndpointOptions asked = options();
    asked.provider = unknown;
    const Error error = open_fabric_endpoint(fabric.library(), asked).error;
    EXPECT_EQ(error.code, ENODEV);
    EXPECT_NE(std::string(error.message).find("there are: tcp;ofi_rxm"), std::string::npos) << error.message;
  }
}

TEST_F(TransferEndpointFaults, AFullQueueIsTriedAgain) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  Notes notes;
  made.endpoint->handle(2, notes);
  Counted early;
  EXPECT_EQ(made.endpoint->put(0, mine(), target(), early).code, ENOTCONN);
  ASSERT_FALSE(made.endpoint->connect());
  EXPECT_EQ(made.endpoint->connect().code, EISCONN);
  int full = 3;
  fabric.refuse = [&](const std::string& call) {
    return (call == "fi_writemsg" || call == "fi_sendmsg") && full-- > 0 ? -FI_EAGAIN : 0;
  };
  EXPECT_EQ(made.endpoint->put(0, mine(), target(), early).code, EAGAIN);
  EXPECT_EQ(made.endpoint->send(0, 2, "text", 4, nullptr).code, EAGAIN);
  EXPECT_EQ(made.endpoint->put(0, mine(), target(), early).code, EAGAIN);
  EXPECT_EQ(early.calls, 0) << "an operation that was refused is not used";
  const Error error = use(*made.endpoint, notes);
  EXPECT_FALSE(error) << error.message;
  EXPECT_EQ(notes.texts, std::vector<std::string>{"text"});
  EXPECT_EQ(made.endpoint->put(1, mine(), target(), early).code, EINVAL);
  LocalMemory huge = mine();
  huge.bytes = made.endpoint->capabilities().max_transfer + 1;
  EXPECT_EQ(made.endpoint->put(0, huge, target(), early).code, EMSGSIZE);
  const std::vector<LocalMemory> many(made.endpoint->capabilities().max_elements + 1, mine());
  EXPECT_EQ(made.endpoint->put_list(0, many, target(), early).code, EMSGSIZE);
}

TEST_F(TransferEndpointFaults, WhatIsUnderWayAtTheCloseIsCancelled) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  ASSERT_FALSE(made.endpoint->connect());
  Counted put;
  fabric.refuse = [](const std::string& call) { return call == "fi_cq_read" ? -FI_EAGAIN : 0; };
  ASSERT_FALSE(made.endpoint->put(0, mine(), target(), put));
  EXPECT_FALSE(made.endpoint->close());
  EXPECT_EQ(put.calls, 1);
  EXPECT_EQ(put.code, ECANCELED);
}

TEST_F(TransferEndpointFaults, LeasesThatAreOutKeepItOpen) {
  MadeFabric fabric({{"tcp"}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  ASSERT_FALSE(made.endpoint->connect());
  pinion_lease lease = PINION_LEASE_INIT;
  ASSERT_EQ(pinion_acquire(made.endpoint->domain(), memory_, kBytes, PINION_ACCESS_READ, &lease), 0)
      << pinion_last_error();
  EXPECT_EQ(made.endpoint->close().code, EBUSY);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_FALSE(made.endpoint->close());
  EXPECT_FALSE(made.endpoint->close());
}

TEST_F(TransferEndpointFaults, StrangersMessagesAreDropped) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  Notes notes;
  made.endpoint->handle(2, notes);
  ASSERT_FALSE(made.endpoint->connect());
  std::srand(5);
  for (int i = 0; i < 2000; ++i) {
    unsigned char junk[100];
    for (unsigned char& byte : junk) byte = static_cast<unsigned char>(std::rand());
    const iovec bytes{junk, std::size_t(std::rand()) % sizeof junk};
    fi_msg message{};
    message.msg_iov = &bytes;
    message.iov_count = 1;
    ASSERT_EQ(fi_sendmsg(&fabric.endpoint, &message, 0), 0);
    made.endpoint->progress();
  }
  EXPECT_TRUE(notes.texts.empty());
  const Error error = use(*made.endpoint, notes);
  EXPECT_FALSE(error) << error.message;
  EXPECT_EQ(notes.texts, std::vector<std::string>{"text"});
}

/// Process 0 of a job of two over a made fabric. The test speaks for the other one, whose card lies there.
class TransferEndpointSources : public TransferEndpointFaults {
 protected:
  void join(MadeFabric& fabric) {
    FabricEndpointOptions options = this->options();
    options.job.peers = 2;
    Directory directory;
    ASSERT_FALSE(directory.open(options.job.directory));
    Card other = own_card({1, 2, options.job.directory});
    other.provider = "tcp";
    other.address = {'m', 'a', 'd', 'e', 0};
    ASSERT_FALSE(directory.publish(other));
    made_ = open_fabric_endpoint(fabric.library(), options);
    ASSERT_FALSE(made_.error) << made_.error.message;
    made_.endpoint->handle(2, notes_);
    ASSERT_FALSE(made_.endpoint->connect());
    std::vector<Card> cards;
    ASSERT_FALSE(directory.collect(2, kSecond, cards));
    token_ = cards[0].token;
  }
  /// A message that names process 1 as its sender arrives from that address.
  void arrive(MadeFabric& fabric, fi_addr_t source, unsigned kind, std::uint32_t number) {
    fabric.source = source;
    char wire[kMessageHeader + 4] = {};
    write_header(wire, token_, {1, kind, number, nullptr, 4});
    std::memcpy(wire + kMessageHeader, "text", 4);
    const iovec bytes{wire, sizeof wire};
    fi_msg message{};
    message.msg_iov = &bytes;
    message.iov_count = 1;
    ASSERT_EQ(fi_sendmsg(&fabric.endpoint, &message, 0), 0);
    while (made_.endpoint->progress() > 0) continue;
  }
  bool has_lost_peer() const { return made_.endpoint->send(1, 2, "text", 4, nullptr).code == ECONNRESET; }

  FabricEndpointResult made_;  ///< ended by the test, before its fabric
  Notes notes_;
  std::uint64_t token_ = 0;
};

TEST_F(TransferEndpointSources, APeerSpeaksInItsOwnName) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA | FI_SOURCE, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  join(fabric);
  arrive(fabric, FI_ADDR_UNSPEC, 2, 1);
  EXPECT_EQ(notes_.texts.size(), 1U) << "the provider does not know all sources";
  arrive(fabric, 0, 2, 2);
  EXPECT_EQ(notes_.texts.size(), 1U) << "of another peer";
  arrive(fabric, 1, 2, 2);
  EXPECT_EQ(notes_.texts.size(), 2U) << "the dropped one has no number";
  arrive(fabric, FI_ADDR_UNSPEC, 2, 3);
  EXPECT_EQ(notes_.texts.size(), 2U) << "its source was known before";
  arrive(fabric, 0, kLeave, 3);
  EXPECT_FALSE(has_lost_peer());
  arrive(fabric, 1, kLeave, 3);
  EXPECT_TRUE(has_lost_peer());
  made_.endpoint.reset();
}

TEST_F(TransferEndpointSources, WithoutSourcesNamesAreBelieved) {
  MadeFabric fabric({{"tcp", 0, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO}});
  join(fabric);
  arrive(fabric, 0, 2, 1);
  EXPECT_EQ(notes_.texts.size(), 1U);
  made_.endpoint.reset();
}

TEST_F(TransferEndpointFaults, ManyThreadsTransferAtATime) {
  MadeFabric fabric({{"tcp"}});
  FabricEndpointResult made = open_fabric_endpoint(fabric.library(), options());
  ASSERT_FALSE(made.error) << made.error.message;
  ASSERT_FALSE(made.endpoint->connect());
  struct Flagged : Operation {
    void done(const Error& error) override { code.store(error.code), calls.fetch_add(1); }
    std::atomic<int> calls{0}, code{0};
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        Flagged put;
        const LocalMemory from{memory_ + t * 64, 64, nullptr};
        const RemoteMemory to{target().address + std::uint64_t(t) * 64, 1};
        Error error;
        while ((error = made.endpoint->put(0, from, to, put)).code == EAGAIN) made.endpoint->progress();
        ASSERT_FALSE(error) << error.message;
        while (put.calls.load() == 0)
          if (made.endpoint->progress() == 0) made.endpoint->wait(10 * kMillisecond);
        ASSERT_EQ(put.code.load(), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pinion::transfer
#endif
