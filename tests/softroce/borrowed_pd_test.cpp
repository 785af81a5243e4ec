// Keys from the C API over the program's own queue pair: a domain on a protection domain that the program has
// opened, on a real kernel RDMA stack. Runs in the virtual machine (tests/e2e/softroce.sh); by hand:
// build/bin/pinion softroce -- build/tests/softroce/borrowed_pd_test
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "device/kernel/memlock.h"
#include "pinion/pinion.h"
#include "queue_pair.h"

namespace pinion {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

/// Anonymous memory on ordinary pages: whole hugepages are counted as pinned otherwise.
class Memory {
 public:
  Memory() { map(); }
  ~Memory() { munmap(start, kBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  /// Other pages at the same address.
  void renew() {
    munmap(start, kBytes);
    map();
  }

  char* start = nullptr;

 private:
  void map() {
    start =
        static_cast<char*>(mmap(start, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    madvise(start, kBytes, MADV_NOHUGEPAGE);
  }
};

class BorrowedProtectionDomain : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pinion_start("retention=leave-pinned"), 0) << pinion_last_error();
    ASSERT_EQ(pinion_domain_open_pd(pair_.pd(), &domain_), 0) << pinion_last_error();
  }
  void TearDown() override {
    EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    EXPECT_EQ(pinion_stop(), 0);
  }

  struct Leased {
    pinion_lease lease = PINION_LEASE_INIT;
    struct pinion_keys keys {};
  };
  Leased acquire(const void* address, std::size_t bytes, unsigned access) {
    Leased leased;
    EXPECT_EQ(pinion_acquire(domain_, address, bytes, access, &leased.lease), 0) << pinion_last_error();
    leased.keys.size = sizeof leased.keys;
    EXPECT_EQ(pinion_lease_keys(&leased.lease, &leased.keys), 0) << pinion_last_error();
    return leased;
  }
  static void release(Leased& leased) { EXPECT_EQ(pinion_release(&leased.lease), 0) << pinion_last_error(); }

  /// An RDMA write of all of `source` into `target`, with leases for it.
  void move(const Memory& source, const Memory& target) {
    Leased from = acquire(source.start, kBytes, PINION_ACCESS_READ);
    Leased to = acquire(target.start, kBytes, PINION_ACCESS_WRITE | PINION_ACCESS_REMOTE_WRITE);
    EXPECT_EQ(to.keys.remote_base, to.keys.address);
    EXPECT_EQ(to.keys.remote_key, to.keys.rkey);
    EXPECT_EQ(pair_.write(source.start, from.keys.lkey, target.start, to.keys.rkey, kBytes), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(source.start, target.start, kBytes), 0);
    release(from);
    release(to);
  }

  LoopedQueuePair pair_;
  pinion_domain* domain_ = nullptr;
};

TEST_F(BorrowedProtectionDomain, ItsKeysMoveData) {
  const Memory source, target;
  for (int round = 0; round < 3; ++round) {
    std::memset(source.start, 'a' + round, kBytes);
    move(source, target);
  }
  struct pinion_statistics statistics {};
  statistics.size = sizeof statistics;
  ASSERT_EQ(::pinion_statistics(domain_, &statistics), 0);
  EXPECT_EQ(statistics.registrations, 2u) << "what stays registered was registered again";
  EXPECT_EQ(statistics.hits, 4u);
}

TEST_F(BorrowedProtectionDomain, NewMemoryAtTheSameAddressGetsNewKeys) {
  Memory source, target;
  std::memset(source.start, 'a', kBytes);
  move(source, target);
  source.renew();
  target.renew();
  std::memset(source.start, 'b', kBytes);
  move(source, target);
}

TEST_F(BorrowedProtectionDomain, PeersMayDoWhatWasAskedForAndNoMore) {
  const Memory source, target;
  Leased from = acquire(source.start, kBytes, PINION_ACCESS_READ);
  Leased to = acquire(target.start, kBytes, PINION_ACCESS_WRITE);
  EXPECT_EQ(to.keys.access, unsigned{PINION_ACCESS_WRITE});
  EXPECT_EQ(pair_.write(source.start, from.keys.lkey, target.start, to.keys.rkey, 4096),
            IBV_WC_REM_ACCESS_ERR);
  release(from);
  release(to);
}

/// A window opens a part of a region, whose own key stays closed to peers (the test before). Soft-RoCE of
/// Linux 6.1 checks a window's rights and its end, and the bounds of the region in place of the window's.
TEST_F(BorrowedProtectionDomain, WindowsOpenPartsOfRegions) {
  const Memory source, target;
  Leased from = acquire(source.start, kBytes, PINION_ACCESS_READ);
  Leased to = acquire(target.start, kBytes, PINION_ACCESS_WRITE);
  ibv_mw* const window = ibv_alloc_mw(pair_.pd(), IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr) << std::strerror(errno);
  ASSERT_EQ(pair_.bind(window, static_cast<ibv_mr*>(to.keys.descriptor), target.start + 8192, 4096),
            IBV_WC_SUCCESS);
  std::memset(source.start, 'w', kBytes);
  std::memset(target.start, '-', kBytes);
  EXPECT_EQ(pair_.write(source.start, from.keys.lkey, target.start + 8192, window->rkey, 4096),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::string(target.start + 8191, 4098), '-' + std::string(4096, 'w') + '-');
  const std::uint32_t key = window->rkey;
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  EXPECT_EQ(pair_.write(source.start, from.keys.lkey, target.start + 8192, key, 4096), IBV_WC_REM_ACCESS_ERR);
  release(from);
  release(to);
}

TEST_F(BorrowedProtectionDomain, MayBeFreedOnceItsDomainIsClosed) {
  ibv_pd* const pd = ibv_alloc_pd(pair_.pd()->context);
  ASSERT_NE(pd, nullptr);
  pinion_domain* domain = nullptr;
  ASSERT_EQ(pinion_domain_open_pd(pd, &domain), 0) << pinion_last_error();
  const Memory memory;
  const std::size_t before = memlock().pinned;
  pinion_lease lease;
  ASSERT_EQ(pinion_acquire(domain, memory.start, kBytes, PINION_ACCESS_WRITE, &lease), 0)
      << pinion_last_error();
  EXPECT_EQ(memlock().pinned - before, kBytes);
  EXPECT_EQ(pinion_domain_close(domain), EBUSY);
  EXPECT_EQ(pinion_release(&lease), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), EBUSY) << "the memory stays registered";
  ASSERT_EQ(pinion_domain_close(domain), 0) << pinion_last_error();
  EXPECT_EQ(memlock().pinned, before);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace pinion
