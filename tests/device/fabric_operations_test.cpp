// Data over a libfabric endpoint with keys from the C API. Pinion decides when to register; fi_mr_reg is
// called by the program's operations, or by Pinion in the program's domain. An endpoint that is connected
// with itself, over each software provider that is here.
#include <gtest/gtest.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <tuple>

#include "pinion/pinion.h"
#include "support/test_name.h"

namespace {

constexpr std::size_t kBytes = std::size_t{256} << 10;

/// Any object of libfabric; closed at the end.
template <class Fid>
class Owned {
 public:
  ~Owned() {
    if (fid) fi_close(&fid->fid);
  }
  Fid* fid = nullptr;
};

/// A reliable datagram endpoint that reaches itself, and registration for it. One thread transfers.
class Endpoint {
 public:
  ~Endpoint() {
    if (info_) fi_freeinfo(info_);
  }

  /// 0, or libfabric's error: the provider is not here.
  int open(const std::string& provider) {
    fi_info* const hints = fi_allocinfo();
    hints->caps = FI_RMA | FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->fabric_attr->prov_name = ::strdup(provider.c_str());
    // shm makes a node's name that of its segment, which two processes cannot both have.
    const char* const node = provider == "shm" ? nullptr : "127.0.0.1";
    int error = fi_getinfo(FI_VERSION(1, 14), node, nullptr, node ? FI_SOURCE : 0, hints, &info_);
    if (error != 0) error = fi_getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &info_);
    fi_freeinfo(hints);
    if (error == 0) error = fi_fabric(info_->fabric_attr, &fabric_.fid, nullptr);
    if (error == 0) error = fi_domain(fabric_.fid, info_, &domain_.fid, nullptr);
    fi_av_attr addresses{};
    addresses.type = FI_AV_TABLE;
    if (error == 0) error = fi_av_open(domain_.fid, &addresses, &addresses_.fid, nullptr);
    fi_cq_attr completions{};
    completions.format = FI_CQ_FORMAT_CONTEXT;
    if (error == 0) error = fi_cq_open(domain_.fid, &completions, &completions_.fid, nullptr);
    if (error == 0) error = fi_endpoint(domain_.fid, info_, &endpoint_.fid, nullptr);
    if (error == 0) error = fi_ep_bind(endpoint_.fid, &addresses_.fid->fid, 0);
    if (error == 0) error = fi_ep_bind(endpoint_.fid, &completions_.fid->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0) error = fi_enable(endpoint_.fid);
    char name[256];
    std::size_t length = sizeof name;
    if (error == 0) error = fi_getname(&endpoint_.fid->fid, name, &length);
    if (error == 0 && fi_av_insert(addresses_.fid, name, 1, &self_, 0, nullptr) != 1) error = -EIO;
    return error;
  }

  pinion_device_operations operations() {
    pinion_device_operations operations{};
    operations.size = sizeof operations;
    operations.version = PINION_DEVICE_VERSION;
    operations.flags = PINION_DEVICE_PINS_NOTHING | (has(FI_MR_ENDPOINT) ? PINION_DEVICE_NEEDS_ENDPOINT : 0);
    operations.context = this;
    operations.register_memory = [](void* context, void* address, std::size_t bytes, unsigned access,
                                    pinion_registration* made) {
      return static_cast<Endpoint*>(context)->add(address, bytes, access, *made);
    };
    operations.deregister_memory = [](void* context, std::uint64_t handle) {
      --static_cast<Endpoint*>(context)->live_;
      return fi_close(&reinterpret_cast<fid_mr*>(handle)->fid);
    };
    return operations;
  }
  int live() const { return live_; }
  fid_domain* domain() const { return domain_.fid; }
  fid_ep* endpoint() const { return endpoint_.fid; }
  const fi_info* info() const { return info_; }

  /// Writes to itself, to the end. 0, or the error of the post or of the completion.
  int write(const void* source, const struct pinion_keys& from, const void* target,
            const struct pinion_keys& to, std::size_t bytes) {
    iovec local{const_cast<void*>(source), bytes};
    fi_rma_iov remote{to.remote_base + (reinterpret_cast<std::uintptr_t>(target) - to.address), bytes,
                      to.remote_key};
    void* descriptor = from.descriptor;
    fi_msg_rma message{};
    message.msg_iov = &local;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = self_;
    message.rma_iov = &remote;
    message.rma_iov_count = 1;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    ssize_t done;
    do {
      done = fi_writemsg(endpoint_.fid, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
      if (done == -FI_EAGAIN) fi_cq_read(completions_.fid, nullptr, 0);
    } while (done == -FI_EAGAIN && std::chrono::steady_clock::now() < end);
    if (done != 0) return static_cast<int>(done);
    fi_cq_entry completion{};
    do {
      done = fi_cq_read(completions_.fid, &completion, 1);
    } while (done == -FI_EAGAIN && std::chrono::steady_clock::now() < end);
    return done == 1 ? 0 : static_cast<int>(done);
  }

 private:
  bool has(std::uint64_t mode) const {
    return (static_cast<std::uint64_t>(info_->domain_attr->mr_mode) & mode) != 0;
  }

  int add(void* address, std::size_t bytes, unsigned access, pinion_registration& made) {
    std::uint64_t rights = FI_WRITE | FI_READ;
    if (access & PINION_ACCESS_REMOTE_READ) rights |= FI_REMOTE_READ;
    if (access & PINION_ACCESS_REMOTE_WRITE) rights |= FI_REMOTE_WRITE;
    fid_mr* region = nullptr;
    if (const int error = fi_mr_reg(domain_.fid, address, bytes, rights, 0, ++keys_, 0, &region, nullptr))
      return error;
    if (has(FI_MR_ENDPOINT)) {
      if (int error = fi_mr_bind(region, &endpoint_.fid->fid, 0);
          error != 0 || (error = fi_mr_enable(region)) != 0) {
        fi_close(&region->fid);
        return error;
      }
      made.endpoint = endpoint_.fid;
    }
    made.handle = reinterpret_cast<std::uintptr_t>(region);
    made.descriptor = fi_mr_desc(region);
    made.remote_key = fi_mr_key(region);
    if (!has(FI_MR_VIRT_ADDR)) made.remote_base = 0;
    ++live_;
    return 0;
  }

  // Closed from the last to the first.
  fi_info* info_ = nullptr;
  Owned<fid_fabric> fabric_;
  Owned<fid_domain> domain_;
  Owned<fid_av> addresses_;
  Owned<fid_cq> completions_;
  Owned<fid_ep> endpoint_;
  fi_addr_t self_ = 0;
  std::atomic<std::uint64_t> keys_{0};
  std::atomic<int> live_{0};
};

enum class Registers { program, pinion };

class FabricOperations : public ::testing::TestWithParam<std::tuple<const char*, Registers>> {
 protected:
  void SetUp() override {
    ::unsetenv("PINION");
    const auto [provider, registers] = GetParam();
#ifndef PINION_HAS_LIBFABRIC
    if (registers == Registers::pinion) GTEST_SKIP() << "built without libfabric's headers";
#endif
    if (const int error = endpoint_.open(provider)) GTEST_SKIP() << provider << ": " << fi_strerror(-error);
    ASSERT_EQ(pinion_start("retention=leave-pinned"), 0) << pinion_last_error();
    if (registers == Registers::program) {
      const pinion_device_operations operations = endpoint_.operations();
      ASSERT_EQ(pinion_domain_open_operations(&operations, &domain_), 0) << pinion_last_error();
    } else {
      ASSERT_EQ(
          pinion_domain_open_fabric(endpoint_.domain(), endpoint_.info(), endpoint_.endpoint(), &domain_), 0)
          << pinion_last_error();
    }
  }
  void TearDown() override {
    if (domain_ == nullptr) return;
    EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    EXPECT_EQ(pinion_stop(), 0);
    EXPECT_EQ(endpoint_.live(), 0);
  }

  pinion_lease acquire(const void* address, std::size_t bytes, unsigned access, struct pinion_keys& keys) {
    pinion_lease lease = PINION_LEASE_INIT;
    EXPECT_EQ(pinion_acquire(domain_, address, bytes, access, &lease), 0) << pinion_last_error();
    keys.size = sizeof keys;
    EXPECT_EQ(pinion_lease_keys(&lease, &keys), 0) << pinion_last_error();
    return lease;
  }

  Endpoint endpoint_;
  pinion_domain* domain_ = nullptr;
};

TEST_P(FabricOperations, ItsKeysMoveData) {
  const std::size_t mapped = 2 * kBytes + 8192;
  char* const memory =
      static_cast<char*>(::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  char* const source = memory + 100;                 // within its first page
  char* const target = memory + kBytes + 8192 - 12;  // and within another
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kBytes; ++i)
      source[i] = static_cast<char>(i * 31 + i / 251 + std::size_t(round));
    std::memset(target, 0, kBytes);
    struct pinion_keys from {
    }, to{};
    pinion_lease sending = acquire(source, kBytes, PINION_ACCESS_READ, from);
    pinion_lease receiving = acquire(target, kBytes, PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE, to);
    const int error = endpoint_.write(source, from, target, to, kBytes);
    EXPECT_EQ(error, 0) << fi_strerror(-error);
    EXPECT_EQ(std::memcmp(source, target, kBytes), 0);
    EXPECT_EQ(pinion_release(&sending), 0);
    EXPECT_EQ(pinion_release(&receiving), 0);
  }
  struct pinion_statistics statistics {};
  statistics.size = sizeof statistics;
  ASSERT_EQ(pinion_statistics(domain_, &statistics), 0) << pinion_last_error();
  EXPECT_EQ(statistics.registrations, 2u) << "what stays registered was registered again";
  EXPECT_EQ(statistics.regions, 2u);
  ::munmap(memory, mapped);
}

INSTANTIATE_TEST_SUITE_P(Providers, FabricOperations,
                         ::testing::Combine(::testing::Values("tcp;ofi_rxm", "sockets", "udp;ofi_rxd", "shm"),
                                            ::testing::Values(Registers::program, Registers::pinion)),
                         [](const auto& info) {
                           return pinion::test::test_name(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) == Registers::pinion ? "_by_pinion" : "");
                         });

}  // namespace
