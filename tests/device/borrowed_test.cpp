// Domains of the C API on operations of the program's own, from the outside: the requests that the operations
// get, the way of their keys and errors to the caller, and the end of the calls.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pinion/pinion.h"
#include "support/eventually.h"
#include "support/kept_registrations.h"
#include "support/program_device.h"

namespace {

using namespace pinion::test;

class BorrowedDevice : public ::testing::Test {
 protected:
  void SetUp() override { ::unsetenv("PINION"); }
  void TearDown() override {
    if (domain_ != nullptr) {
      EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    }
    while (pinion_stop() == 0) {
    }
    EXPECT_EQ(operations_.live(), 0u);
  }

  void start(const char* options = "retention=leave-pinned") {
    ASSERT_EQ(pinion_start(options), 0) << pinion_last_error();
    ASSERT_EQ(open(operations_.asked, domain_), 0) << pinion_last_error();
  }
  static int open(const pinion_device_operations& operations, pinion_domain*& domain) {
    return pinion_domain_open_operations(&operations, &domain);
  }
  void close() {
    ASSERT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    domain_ = nullptr;
  }
  pinion_lease acquire(const void* address, std::size_t bytes, unsigned access = PINION_ACCESS_READ) {
    pinion_lease lease = PINION_LEASE_INIT;
    EXPECT_EQ(pinion_acquire(domain_, address, bytes, access, &lease), 0) << pinion_last_error();
    return lease;
  }
  void use(const void* address, std::size_t bytes, unsigned access = PINION_ACCESS_READ) {
    pinion_lease lease = acquire(address, bytes, access);
    EXPECT_EQ(pinion_release(&lease), 0) << pinion_last_error();
  }
  int refusal(const void* address, std::size_t bytes, unsigned access = PINION_ACCESS_READ) {
    pinion_lease lease = PINION_LEASE_INIT;
    return pinion_acquire(domain_, address, bytes, access, &lease);
  }
  static void expect_last_error(const std::string& part) {
    EXPECT_NE(std::string(pinion_last_error()).find(part), std::string::npos) << pinion_last_error();
  }

  Operations operations_;
  pinion_domain* domain_ = nullptr;
};

TEST_F(BorrowedDevice, KeysAreThoseOfItsOperations) {
  int descriptor = 0, endpoint = 0;
  operations_.describe = [&](pinion_registration& made) {
    made.lkey = 7;
    made.descriptor = &descriptor;
    made.remote_key = 0x1234'5678'9abc'def0;
    made.remote_base = 0;
    made.raw_key = "a key of 20 bytes...";
    made.raw_key_bytes = 20;
    made.endpoint = &endpoint;
  };
  start();
  const Memory memory(8);
  pinion_lease lease = acquire(memory.page(2) + 100, kPage);
  struct pinion_keys keys {};
  keys.size = sizeof keys;
  ASSERT_EQ(pinion_lease_keys(&lease, &keys), 0) << pinion_last_error();
  EXPECT_EQ(keys.size, sizeof keys);
  EXPECT_GT(keys.handle, std::uint64_t{1} << 40);
  EXPECT_EQ(keys.lkey, 7u);
  EXPECT_EQ(keys.rkey, 0x9abcdef0u);
  EXPECT_EQ(keys.address, reinterpret_cast<std::uintptr_t>(memory.page(2)));
  EXPECT_EQ(keys.bytes, 2 * kPage);
  EXPECT_EQ(keys.descriptor, &descriptor);
  EXPECT_EQ(keys.remote_key, 0x1234'5678'9abc'def0u);
  EXPECT_EQ(keys.remote_base, 0u);
  EXPECT_EQ(std::string(static_cast<const char*>(keys.raw_key), keys.raw_key_bytes), "a key of 20 bytes...");
  EXPECT_EQ(keys.endpoint, &endpoint);
  EXPECT_EQ(pinion_release(&lease), 0);
}

/// The structure as of version 0.1.
struct keys_of_0_1 {
  std::size_t size;
  std::uint64_t handle;
  std::uint32_t lkey;
  std::uint32_t rkey;
  std::uint64_t address;
  std::uint64_t bytes;
  unsigned access;
  unsigned reserved;
};

TEST_F(BorrowedDevice, AProgramThatKnowsTheOlderKeysGetsThese) {
  operations_.describe = [](pinion_registration& made) { made.remote_key = 9; };
  start();
  const Memory memory(1);
  pinion_lease lease = acquire(memory.page(0), 10, PINION_ACCESS_WRITE);
  struct {
    keys_of_0_1 keys;
    unsigned char beyond[sizeof(struct pinion_keys)];
  } place{};
  std::memset(place.beyond, 0x5a, sizeof place.beyond);
  place.keys.size = sizeof place.keys;
  ASSERT_EQ(pinion_lease_keys(&lease, reinterpret_cast<struct pinion_keys*>(&place.keys)), 0)
      << pinion_last_error();
  EXPECT_EQ(place.keys.size, sizeof place.keys);
  EXPECT_EQ(place.keys.rkey, 9u);
  EXPECT_EQ(place.keys.address, reinterpret_cast<std::uintptr_t>(memory.page(0)));
  EXPECT_EQ(place.keys.bytes, kPage);
  EXPECT_EQ(place.keys.access, unsigned{PINION_ACCESS_WRITE});
  for (const unsigned char byte : place.beyond) ASSERT_EQ(byte, 0x5a) << "written beyond the older structure";
  EXPECT_EQ(pinion_release(&lease), 0);
}

TEST_F(BorrowedDevice, RightsAreExactlyThoseAskedFor) {
  start();
  const std::vector<unsigned> asked{PINION_ACCESS_READ, PINION_ACCESS_REMOTE_READ, PINION_ACCESS_WRITE,
                                    PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE};
  const Memory memory(4);
  for (std::size_t i = 0; i < asked.size(); ++i) use(memory.page(i), kPage, asked[i]);
  const auto calls = operations_.calls();
  ASSERT_EQ(calls.size(), asked.size());
  for (std::size_t i = 0; i < asked.size(); ++i) {
    EXPECT_EQ(calls[i].access, asked[i]);
    EXPECT_EQ(calls[i].address, memory.page(i));
    EXPECT_EQ(calls[i].bytes, kPage);
  }
}

TEST_F(BorrowedDevice, MoreRightsReplaceARegistrationAndFewerShareIt) {
  NEEDS_KEPT_REGISTRATIONS();
  start();
  const Memory memory(4);
  use(memory.page(0), 4 * kPage, PINION_ACCESS_READ);
  use(memory.page(0), 4 * kPage, PINION_ACCESS_WRITE);
  EXPECT_EQ(operations_.live(), 1u);
  use(memory.page(1), kPage, PINION_ACCESS_READ);
  EXPECT_EQ(operations_.calls().size(), 2u);
}

TEST_F(BorrowedDevice, APrivateOneIsAskedForAllRightsAtOnce) {
  operations_.asked.flags = PINION_DEVICE_PRIVATE;
  start();
  const Memory memory(1);
  use(memory.page(0), kPage, PINION_ACCESS_READ);
  ASSERT_EQ(operations_.calls().size(), 1u);
  EXPECT_EQ(operations_.calls()[0].access,
            unsigned{PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE});
}

TEST_F(BorrowedDevice, ErrorsReachTheCaller) {
  start();
  const Memory memory(1);
  for (const int code : {EFAULT, -EFAULT, ENOSPC, EIO}) {
    operations_.refuse = [code](const Operations::Live&, std::size_t) { return code; };
    EXPECT_EQ(refusal(memory.page(0), kPage), std::abs(code));
    expect_last_error("the program's device refuses to register");
  }
  operations_.refuse = [](const Operations::Live&, std::size_t) { return 0; };
  use(memory.page(0), kPage);
}

TEST_F(BorrowedDevice, MemoryThatIsNotThereIsRefusedBeforeItIsAsked) {
  const Memory read_only(1, PROT_READ);
  start();
  EXPECT_EQ(refusal(read_only.page(0), kPage, PINION_ACCESS_WRITE), EFAULT);
  EXPECT_EQ(operations_.calls().size(), 0u);
  close();
  operations_.asked.flags = PINION_DEVICE_PINS_NOTHING;
  ASSERT_EQ(open(operations_.asked, domain_), 0) << pinion_last_error();
  use(read_only.page(0), kPage, PINION_ACCESS_WRITE);
  EXPECT_EQ(operations_.calls().size(), 1u);
}

TEST_F(BorrowedDevice, AFullDeviceGetsRoomFromIdleRegistrations) {
  NEEDS_KEPT_REGISTRATIONS();
  operations_.refuse = [](const Operations::Live&, std::size_t live) { return live == 2 ? ENOSPC : 0; };
  start();
  const Memory memory(8);
  for (std::size_t i = 0; i < 8; i += 2) use(memory.page(i), kPage);
  EXPECT_LE(operations_.live(), 2u);
  EXPECT_GT(operations_.calls().size(), 4u) << "nothing was refused";
}

TEST_F(BorrowedDevice, ALongRangeIsRefused) {
  operations_.asked.max_region_bytes = 4 * kPage;
  start();
  const Memory memory(8);
  use(memory.page(0), 4 * kPage);
  EXPECT_EQ(refusal(memory.page(0), 5 * kPage), EFBIG);
}

TEST_F(BorrowedDevice, ARegistrationNamesTheEndpointThatItNeeds) {
  operations_.asked.flags = PINION_DEVICE_NEEDS_ENDPOINT;
  start();
  const Memory memory(1);
  EXPECT_EQ(refusal(memory.page(0), kPage), EINVAL);
  expect_last_error("needs an endpoint");
  EXPECT_EQ(operations_.live(), 0u);
  int endpoint = 0;
  operations_.describe = [&](pinion_registration& made) { made.endpoint = &endpoint; };
  use(memory.page(0), kPage);
}

TEST_F(BorrowedDevice, IsBusyWhileLeasesAreOutAndIsLeftAloneAfterClosing) {
  start();
  const Memory memory(2);
  pinion_lease lease = acquire(memory.page(0), kPage);
  EXPECT_EQ(pinion_domain_close(domain_), EBUSY);
  expect_last_error("under lease");
  EXPECT_EQ(operations_.live(), 1u);
  EXPECT_EQ(pinion_release(&lease), 0);
  use(memory.page(1), kPage);
  close();
  EXPECT_EQ(operations_.live(), 0u);
  const std::size_t calls = operations_.calls().size();
  { const Memory others(4); }
  EXPECT_EQ(operations_.calls().size(), calls);
}

TEST_F(BorrowedDevice, AFailedDeregistrationIsTriedAgain) {
  int refusals = 1;
  operations_.refuse_deregistration = [&] { return refusals-- > 0 ? EBUSY : 0; };
  start("retention=on-demand");
  const Memory memory(1);
  use(memory.page(0), kPage);
  close();
  EXPECT_LT(refusals, 0) << "it was tried once only";
  EXPECT_EQ(operations_.live(), 0u);
}

// On threads that acquire and release; the helper's calls must return.
TEST_F(BorrowedDevice, AnExceptionOfItsOperationsReachesTheCallerAndLeavesItsDomainInOrder) {
  struct Thrown {};
  bool throws = true;
  operations_.refuse = [&](const Operations::Live&, std::size_t) { return throws ? throw Thrown() : 0; };
  start("retention=leave-pinned,limit-regions=1");
  const Memory memory(2);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(refusal(memory.page(0), kPage), Thrown);
  throws = false;
  std::thread([&] { use(memory.page(0), kPage); }).join();
  use(memory.page(0), kPage);
  EXPECT_EQ(operations_.live(), 1u);

  // The deregistration of one that goes for another one; the helper tries it again.
  std::atomic<bool> keeps{true};
  operations_.refuse_deregistration = [&] { return keeps.exchange(false) ? throw Thrown() : 0; };
  EXPECT_THROW(refusal(memory.page(1), kPage), Thrown);
  EXPECT_TRUE(eventually([&] { return operations_.live() == 0; }));
  use(memory.page(1), kPage);
  close();
  EXPECT_EQ(operations_.live(), 0u);
}

/// On Pinion's own thread there is nobody to catch it: it counts as a failed deregistration, which is tried
/// again.
TEST_F(BorrowedDevice, AnExceptionWhereNobodyCatchesItIsAFailure) {
  NEEDS_KEPT_REGISTRATIONS();
  struct Thrown {};
  std::atomic<int> thrown{0};
  operations_.refuse_deregistration = [&] { return thrown++ == 0 ? throw Thrown() : 0; };
  start("retention=leave-pinned");
  const Memory memory(2);
  use(memory.page(0), kPage);
  EXPECT_EQ(pinion_domain_close(domain_), EBUSY) << "it stays open with what stays registered";
  EXPECT_EQ(operations_.live(), 1u);
  close();
  EXPECT_EQ(thrown, 2);
  EXPECT_EQ(operations_.live(), 0u);
  ASSERT_EQ(open(operations_.asked, domain_), 0) << pinion_last_error();
  use(memory.page(1), kPage);
  close();
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(BorrowedDevice, AClosedOneLeavesItsPlace) {
  start();
  const Memory memory(1);
  for (int i = 0; i < 40; ++i) {
    Operations others;
    close();
    ASSERT_EQ(open(others.asked, domain_), 0) << pinion_last_error();
    use(memory.page(0), kPage);
    EXPECT_EQ(others.calls().size(), 1u) << "another device was asked";
    close();
    EXPECT_EQ(others.live(), 0u);
    ASSERT_EQ(open(operations_.asked, domain_), 0) << pinion_last_error();
  }
}

TEST_F(BorrowedDevice, EndsWithTheRun) {
  start();
  const Memory memory(1);
  use(memory.page(0), kPage);
  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(BorrowedDevice, ALeaseThatOutlivesTheRunIsGivenBackToItsOperations) {
  start();
  const Memory memory(1);
  pinion_lease lease = acquire(memory.page(0), kPage);
  EXPECT_EQ(pinion_stop(), 0);
  EXPECT_EQ(operations_.live(), 1u);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(operations_.live(), 0u);
}

TEST_F(BorrowedDevice, AForkedChildNeverCallsThem) {
  start();
  const Memory memory(2);
  pinion_lease lease = acquire(memory.page(0), kPage);
  const std::size_t live = operations_.live(), calls = operations_.calls().size();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = refusal(memory.page(1), kPage) == ESHUTDOWN ? 0 : 1;
    if (pinion_release(&lease) != 0) wrong |= 2;
    if (pinion_domain_close(domain_) != 0) wrong |= 4;
    if (operations_.live() != live || operations_.calls().size() != calls) wrong |= 8;
    ::_exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(pinion_release(&lease), 0);
}

TEST_F(BorrowedDevice, WhatIsWrongWithTheStructureIsNamed) {
  ASSERT_EQ(pinion_start("retention=leave-pinned"), 0) << pinion_last_error();
  pinion_domain* domain = nullptr;
  const auto refused = [&](const char* part, auto&& spoil) {
    pinion_device_operations wrong = operations_.asked;
    spoil(wrong);
    EXPECT_EQ(open(wrong, domain), EINVAL) << part;
    EXPECT_EQ(domain, nullptr);
    expect_last_error(part);
  };
  refused("`size`", [](auto& wrong) { wrong.size = 0; });
  refused("`size`", [](auto& wrong) { wrong.size = sizeof wrong - 1; });
  refused("version 0", [](auto& wrong) { wrong.version = 0; });
  refused("version 2", [](auto& wrong) { wrong.version = 2; });
  refused("flags 0x80000000", [](auto& wrong) { wrong.flags = 0x80000000; });
  refused("the first is NULL", [](auto& wrong) { wrong.register_memory = nullptr; });
  refused("the second is NULL", [](auto& wrong) { wrong.deregister_memory = nullptr; });
  EXPECT_EQ(pinion_domain_open_operations(nullptr, &domain), EINVAL);
  EXPECT_EQ(pinion_domain_open_operations(&operations_.asked, nullptr), EINVAL);
  EXPECT_EQ(pinion_domain_open_pd(nullptr, &domain), EINVAL);
  // A later version's structure is longer.
  struct {
    pinion_device_operations known;
    char more[64];
  } longer{operations_.asked, {}};
  longer.known.size = sizeof longer;
  EXPECT_EQ(open(longer.known, domain_), 0) << pinion_last_error();
}

TEST_F(BorrowedDevice, NeedsARun) {
  pinion_domain* domain = nullptr;
  EXPECT_EQ(open(operations_.asked, domain), ESHUTDOWN);
}

}  // namespace
