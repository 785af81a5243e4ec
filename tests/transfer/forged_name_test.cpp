// A process of a job whose messages name another one as their sender, over the software providers of
// libfabric that this machine has.
#include <gtest/gtest.h>

#include "transfer/endpoint/fabric_endpoint.h"

#ifdef PINION_HAS_LIBFABRIC
#include <rdma/fi_endpoint.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "device/fabric/fabric_library.h"
#include "pinion/pinion.h"
#include "support/processes.h"
#include "support/temporary_directory.h"
#include "support/test_name.h"
#include "transfer/endpoint/message.h"

namespace pinion::transfer {
namespace {

using test::Processes;

constexpr unsigned kNote = 3;
enum : unsigned { kOwner, kHonest, kLiar, kMembers };

/// libfabric, with messages of this process that name the honest one and its end, once `on`.
class Forgery {
 public:
  static inline bool on = false;

  /// Endpoints keep a reference to it.
  static const FabricLibrary& over(const FabricLibrary& library) {
    static FabricLibrary forged = real_ = library;
    forged.fabric = [](fi_fabric_attr* attributes, fid_fabric** fabric, void* context) {
      const int code = real_.fabric(attributes, fabric, context);
      if (code == 0) replace((*fabric)->ops, fabric_, real_fabric_)->domain = open_domain;
      return code;
    };
    return forged;
  }

 private:
  /// Lets an object have operations of its own.
  template <class Operations>
  static Operations* replace(Operations*& of, Operations& own, Operations*& real) {
    own = *(real = of);
    return of = &own;
  }
  static int open_domain(fid_fabric* fabric, fi_info* info, fid_domain** domain, void* context) {
    const int code = real_fabric_->domain(fabric, info, domain, context);
    if (code == 0) replace((*domain)->ops, domain_, real_domain_)->endpoint = open_endpoint;
    return code;
  }
  static int open_endpoint(fid_domain* domain, fi_info* info, fid_ep** endpoint, void* context) {
    const int code = real_domain_->endpoint(domain, info, endpoint, context);
    // Provider net opens its connections' endpoints by the same call: their operations are others.
    if (code == 0 && info->ep_attr->type == FI_EP_RDM)
      replace((*endpoint)->msg, message_, real_message_)->sendmsg = send;
    return code;
  }
  static ssize_t send(fid_ep* endpoint, const fi_msg* message, std::uint64_t flags) {
    if (on) {
      char* const wire = static_cast<char*>(message->msg_iov[0].iov_base);
      std::uint64_t token;
      std::memcpy(&token, wire + 8, sizeof token);
      write_header(wire, token, {kHonest, kLeave, 1, nullptr, message->msg_iov[0].iov_len - kMessageHeader});
    }
    return real_message_->sendmsg(endpoint, message, flags);
  }

  static inline FabricLibrary real_;
  static inline fi_ops_fabric fabric_, *real_fabric_;
  static inline fi_ops_domain domain_, *real_domain_;
  static inline fi_ops_msg message_, *real_message_;
};

class Member final : public MessageHandler {
 public:
  Member(const std::string& provider, const std::string& directory, unsigned rank) {
    ::unsetenv("PINION");
    EXPECT_EQ(pinion_start("retention=on-demand"), 0) << pinion_last_error();
    Error error;
    const FabricLibrary* const library = fabric_library(error);
    if (library == nullptr) ::_exit(Processes::kSkipped);
    FabricEndpointOptions options;
    options.job = {rank, kMembers, directory};
    options.provider = provider;
    FabricEndpointResult made = open_fabric_endpoint(Forgery::over(*library), options);
    if (made.error.code == ENODEV) ::_exit(Processes::kSkipped);
    endpoint = std::move(made.endpoint);
    endpoint->handle(kNote, *this);
    EXPECT_FALSE(error = endpoint->connect()) << error.message;
  }
  ~Member() {
    EXPECT_FALSE(endpoint->close());
    EXPECT_EQ(pinion_stop(), 0);
  }

  void tell(Peer to) {
    Error error;
    EXPECT_TRUE(
        until([&] { return (error = endpoint->send(to, kNote, "note", 4, nullptr)).code != EAGAIN; }));
    EXPECT_FALSE(error) << error.message;
  }
  template <class Holds>
  bool until(Holds&& holds) {
    const Time end = monotonic_now() + 60 * kSecond;
    while (!holds()) {
      if (monotonic_now() > end) return false;
      if (endpoint->progress() == 0) endpoint->wait(10 * kMillisecond);
    }
    return true;
  }
  void message(Peer from, const void*, std::size_t) override { ++heard[from]; }
  void gone(Peer peer) override { lost[peer] = true; }

  std::unique_ptr<FabricEndpoint> endpoint;
  std::atomic<int> heard[kMembers] = {};
  std::atomic<bool> lost[kMembers] = {};
};

class ForgedName : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ::setenv("FI_PROVIDER", GetParam(), 1); }
  TemporaryDirectory directory_;
};

TEST_P(ForgedName, EndsNobodyElsesTraffic) {
  Processes all(kMembers, [&](unsigned rank) {
    Member self(GetParam(), directory_.path() + "/job", rank);
    if (rank == kLiar) {
      Forgery::on = true;
      self.tell(kOwner);
      Forgery::on = false;
      self.tell(kOwner);  // its number shows the gap: the liar is lost
    } else if (rank == kHonest) {
      self.tell(kOwner);
      EXPECT_TRUE(self.until([&] { return self.heard[kOwner] == 1; }));
      self.tell(kOwner);
    } else {
      EXPECT_TRUE(self.until([&] { return self.heard[kHonest] == 1 && self.lost[kLiar]; }));
      EXPECT_FALSE(self.lost[kHonest]);
      self.tell(kHonest);
      EXPECT_TRUE(self.until([&] { return self.heard[kHonest] == 2; }));
    }
  });
  if (all.skipped()) GTEST_SKIP() << "no provider " << GetParam();
}

// Over sockets, the source of a connection's first message is now and then unknown, so that it is believed.
INSTANTIATE_TEST_SUITE_P(Providers, ForgedName, ::testing::Values("tcp;ofi_rxm", "shm", "net"),
                         [](const auto& info) { return test::test_name(info.param); });

}  // namespace
}  // namespace pinion::transfer
#endif
