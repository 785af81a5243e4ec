// Large messages between two processes, over the software providers of libfabric that this machine has.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "papers/messages/large_messages.h"
#include "papers/messages/protocols.h"
#include "pinion/pinion.h"
#include "support/processes.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"
#include "transfer/endpoint/fabric_endpoint.h"

namespace pinion::transfer {
namespace {

using test::Processes;

constexpr std::size_t kChunk = std::size_t{16} << 10;
constexpr std::size_t kPipelineFrom = std::size_t{256} << 10;
constexpr std::size_t kPiece = std::size_t{128} << 10;

std::uint64_t word(unsigned seed, std::size_t at) { return (at + seed * 7919) * 0x9E37'79B9'7F4A'7C15u; }

/// Pages that were never touched, and an address off every boundary.
class Mapping {
 public:
  explicit Mapping(std::size_t bytes) : bytes_(bytes) {
    base_ = static_cast<char*>(::mmap(nullptr, bytes + kShift, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  }
  Mapping(const Mapping&) = delete;
  ~Mapping() { ::munmap(base_, bytes_ + kShift); }
  char* data() const { return base_ + kShift; }
  std::size_t size() const { return bytes_; }
  void fill(unsigned seed) {
    for (std::size_t i = 0; i < bytes_; ++i) data()[i] = static_cast<char>(word(seed, i) >> 40);
  }
  bool holds(unsigned seed) const {
    for (std::size_t i = 0; i < bytes_; ++i)
      if (data()[i] != static_cast<char>(word(seed, i) >> 40)) return false;
    return true;
  }

 private:
  static constexpr std::size_t kShift = 8 + 3;
  char* base_;
  std::size_t bytes_;
};

/// One process of a test.
class Member {
 public:
  Member(const std::string& provider, const std::string& retention,
         const std::vector<MessageOptions>& options, const std::string& directory, unsigned rank) {
    ::unsetenv("PINION");
    EXPECT_EQ(pinion_start(("retention=" + retention).c_str()), 0) << pinion_last_error();
    FabricEndpointOptions fabric;
    fabric.job = {rank, 2, directory};
    fabric.provider = provider;
    FabricEndpointResult made = open_fabric_endpoint(fabric);
    if (made.error.code == ENODEV || made.error.code == ENOENT || made.error.code == ENOSYS)
      ::_exit(Processes::kSkipped);
    EXPECT_FALSE(made.error) << made.error.message;
    if (!made.endpoint) ::_exit(1);
    endpoint = std::move(made.endpoint);
    for (const MessageOptions& each : options) {
      LargeMessages::Result opened = LargeMessages::open(*endpoint, each);
      EXPECT_FALSE(opened.error) << opened.error.message;
      if (!opened.messages) ::_exit(1);
      messages.push_back(std::move(opened.messages));
    }
    const Error error = endpoint->connect();
    EXPECT_FALSE(error) << error.message;
    if (error) ::_exit(1);
  }
  ~Member() {
    for (const auto& each : messages) each->close();
    const Error error = endpoint->close();
    EXPECT_FALSE(error) << error.message;
    endpoint.reset();
    messages.clear();
    EXPECT_EQ(pinion_stop(), 0) << pinion_last_error();
  }
  Peer other() const { return 1 - endpoint->self(); }

  /// Both ways at once.
  void exchange(LargeMessages& by, std::size_t size) {
    Mapping data(size), memory(size);
    data.fill(endpoint->self());
    Request send, receive;
    by.send(other(), data.data(), size, send);
    by.receive(other(), memory.data(), size, receive);
    EXPECT_FALSE(by.wait(receive)) << receive.error().message;
    EXPECT_FALSE(by.wait(send)) << send.error().message;
    EXPECT_EQ(receive.bytes(), size);
    EXPECT_TRUE(memory.holds(other())) << "other contents: " << size;
  }

  std::unique_ptr<FabricEndpoint> endpoint;
  std::vector<std::unique_ptr<LargeMessages>> messages;  ///< one for each of the options
};

constexpr Protocol kAll[] = {Protocol::automatic, Protocol::bounce, Protocol::rendezvous, Protocol::pipeline,
                             Protocol::prepared};

/// For all protocols, each by messages of its own kind.
std::vector<MessageOptions> small_options() {
  std::vector<MessageOptions> options;
  for (const Protocol protocol : kAll)
    options.push_back({.protocol = protocol,
                       .bounce_below = 2 * kChunk,
                       .pipeline_from = kPipelineFrom,
                       .piece_bytes = kPiece,
                       .chunk_bytes = kChunk,
                       .chunks = 16,
                       .kind = static_cast<unsigned>(options.size())});
  return options;
}

class LargeMessagesFabric : public ::testing::TestWithParam<const char*> {
 protected:
  // libfabric starts sooner with one provider.
  void SetUp() override { ::setenv("FI_PROVIDER", GetParam(), 1); }
  Member member(const char* retention, unsigned rank) const {
    return Member(GetParam(), retention, small_options(), directory_.path(), rank);
  }
  TemporaryDirectory directory_;
};

TEST_P(LargeMessagesFabric, EveryProtocolMovesEverySize) {
  for (const char* const retention : {"on-demand", "helper"}) {
    Processes both(2, [&](unsigned rank) {
      Member self = member(retention, rank);
      for (const auto& messages : self.messages) {
        SCOPED_TRACE(name_of(messages->options().protocol));
        for (const std::size_t size :
             {std::size_t{0}, std::size_t{1}, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk - 1, 2 * kChunk,
              kPipelineFrom - 1, kPipelineFrom, kPipelineFrom + 1, 5 * kPiece + 12345})
          self.exchange(*messages, size);
      }
    });
    if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
  }
}

TEST_P(LargeMessagesFabric, AThousandOutstandingBothWays) {
  Processes both(2, [&](unsigned rank) {
    Member self = member("leave-pinned", rank);
    constexpr unsigned kCount = 1000;
    std::list<Mapping> data, memory;
    std::list<Request> requests;
    LargeMessages& messages = *self.messages.front();
    const auto size_of = [](unsigned i, unsigned seed) { return 1 + (i * 977 + seed * 131) % (3 * kChunk); };
    for (unsigned i = 0; i < kCount; ++i) {
      data.emplace_back(size_of(i, rank)).fill(rank * kCount + i);
      messages.send(self.other(), data.back().data(), data.back().size(), requests.emplace_back());
    }
    for (unsigned i = 0; i < kCount; ++i) {
      memory.emplace_back(size_of(i, self.other()));
      messages.receive(self.other(), memory.back().data(), memory.back().size(), requests.emplace_back());
    }
    for (Request& request : requests) ASSERT_FALSE(messages.wait(request)) << request.error().message;
    unsigned i = 0;
    for (const Mapping& each : memory)
      ASSERT_TRUE(each.holds(self.other() * kCount + i++)) << "other contents";
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}

/// Makes progress until `holds`; the messages of all protocols move.
void drive(Member& self, const std::function<bool()>& holds) {
  while (!holds()) {
    unsigned moved = 0;
    for (const auto& messages : self.messages) moved += messages->progress();
    if (moved == 0) self.endpoint->wait(kMillisecond);
  }
}

/// The peer is killed when the first of six messages by `dying` has moved.
void lose_peer(Member& self, LargeMessages& dying) {
  self.exchange(*self.messages.front(), 100);
  Mapping data(16 * kPiece), memory(16 * kPiece);
  std::list<Request> requests;
  Request* first = nullptr;
  for (const auto& messages : self.messages)
    for (int i = 0; i < 3; ++i) {
      messages->send(self.other(), data.data(), data.size(), requests.emplace_back());
      if (messages.get() == &dying && i == 0) first = &requests.back();
      messages->receive(self.other(), memory.data(), memory.size(), requests.emplace_back());
    }
  if (self.endpoint->self() == 1) {
    drive(self, [&] { return first->done(); });
    ::kill(::getpid(), SIGKILL);
  }
  drive(self, [&] {
    return std::all_of(requests.begin(), requests.end(), [](const Request& each) { return each.done(); });
  });
  auto request = requests.begin();
  for (const auto& messages : self.messages) {
    for (int i = 0; i < 6; ++i) {
      const Error& error = messages->wait(*request++);
      EXPECT_TRUE(!error || error.code == ECONNRESET) << error.message;
    }
    Request later;
    messages->send(1, data.data(), 1, later);
    EXPECT_EQ(messages->wait(later).code, ECONNRESET);
    EXPECT_EQ(messages->pool().free_chunks(), messages->pool().chunks());
  }
}

TEST_P(LargeMessagesFabric, AKilledPeerEndsItsRequests) {
#ifdef PINION_TEST_FULL
  constexpr std::size_t kTimes = std::size(kAll);  // in the middle of each protocol
#else
  constexpr std::size_t kTimes = 1;
#endif
  for (std::size_t protocol = 0; protocol < kTimes; ++protocol) {
    Processes both(2, [&](unsigned rank) {
      Member self = member("on-demand", rank);
      lose_peer(self, *self.messages[protocol]);
    });
    both.expect_killed(1);
    if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
  }
}

#ifdef PINION_TEST_FULL
// Two copies of the memory have to fit.
TEST_P(LargeMessagesFabric, MoreThanTwoGigabytes) {
  Processes both(2, [&](unsigned rank) {
    std::vector<MessageOptions> options = small_options();
    for (MessageOptions& each : options) each.piece_bytes = std::size_t{16} << 20;
    Member self(GetParam(), "on-demand,limit=6G", options, directory_.path(), rank);
    const std::size_t size = (std::size_t{2} << 30) + 12345;
    const std::size_t marks[] = {0, size / 2, (std::size_t{2} << 30) - 1, std::size_t{2} << 30, size - 1};
    Mapping memory(size);
    for (const auto& messages : self.messages) {
      const Protocol protocol = messages->options().protocol;
      if (protocol == Protocol::prepared) continue;  // nothing is
      // Sockets moves the chunks of a pool at some 10 MB/s (fronts.md).
      if (protocol == Protocol::bounce && std::string(GetParam()) == "sockets") continue;
      const auto mark = [&](std::size_t at) {
        return static_cast<char>((at + static_cast<std::size_t>(messages->options().protocol)) % 101 + 1);
      };
      Request request;
      if (rank == 0) {
        for (const std::size_t at : marks) memory.data()[at] = mark(at);
        messages->send(1, memory.data(), size, request);
      } else {
        messages->receive(0, memory.data(), size, request);
      }
      EXPECT_FALSE(messages->wait(request)) << request.error().message;
      for (const std::size_t at : marks) EXPECT_EQ(memory.data()[at], mark(at)) << "other contents: " << at;
    }
  });
  if (both.skipped()) GTEST_SKIP() << "this machine lacks the provider";
}
#endif

#ifdef PINION_TEST_OVER_VERBS
const auto providers = ::testing::Values("verbs;ofi_rxm");
#else
const auto providers = ::testing::Values("shm", "tcp;ofi_rxm", "sockets");
#endif
INSTANTIATE_TEST_SUITE_P(Providers, LargeMessagesFabric, providers,
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace pinion::transfer
