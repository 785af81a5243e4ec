// The devices against the real kernel: pinned pages are read back from /proc/self/status.
#include "device/kernel/pin.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.h"
#include "device/device_options.h"
#include "device/kernel/mapped_hugepages.h"
#include "device/kernel/memlock.h"
#include "device/make.h"
#include "device/model/emulated.h"
#include "device/model/model.h"
#include "device/translation.h"
#include "support/device_battery.h"
#include "support/hugepage_pool.h"
#include "support/in_child.h"
#include "support/pinned_memory.h"
#include "support/system_call_filter.h"

namespace pinion {
namespace {

using namespace test;

std::vector<DeviceMaker> makers() {
  return {{"pin", [] { return make_device("pin", ""); }}};
}
INSTANTIATE_TEST_SUITE_P(Pin, PinningDevice, ::testing::ValuesIn(makers()), name_of);

// ---- pin

TEST(PinDevice, LockedPagesAreCounted) {
  const auto device = make_pin_device();
  Memory memory(12 * page_size());
  memory.touch().protect(memory.range(), PROT_READ);
  const std::size_t before = memlock().locked;
  const auto locked_pages = [&] { return (memlock().locked - before) / page_size(); };
  const Registration first = device->register_range(memory.pages(0, 8), Access::read, Actor::application);
  const Registration second = device->register_range(memory.pages(4, 12), Access::read, Actor::helper);
  ASSERT_FALSE(first.error || second.error);
  EXPECT_EQ(locked_pages(), 12u);
  EXPECT_FALSE(device->deregister(first.key, Actor::application));
  EXPECT_EQ(locked_pages(), 8u);
  EXPECT_FALSE(device->deregister(second.key, Actor::helper));
  EXPECT_EQ(locked_pages(), 0u);
}

TEST(PinDevice, LocksOfPartlyUnmappedMemoryAreUndone) {
  const auto device = make_pin_device();
  Memory memory(16 * page_size());
  memory.touch().protect(memory.range(), PROT_READ);
  const std::size_t before = memlock().locked;
  const Registration r = device->register_range(memory.range(), Access::read, Actor::application);
  ASSERT_FALSE(r.error) << r.error.message;
  memory.unmap(memory.pages(3, 7));
  EXPECT_EQ(memlock().locked, before + 12 * page_size());
  EXPECT_FALSE(device->deregister(r.key, Actor::application));
  EXPECT_EQ(memlock().locked, before);
}

/// Whether every page of `range` is locked: the kernel refuses to invalidate locked pages.
bool all_locked(Range range) {
  for (Address page = range.begin; page < range.end; page += page_size()) {
    if (syscall(SYS_msync, page, page_size(), MS_ASYNC | MS_INVALIDATE) == 0) return false;
  }
  return true;
}

TEST(PinDevice, LocksOfTheProgramStay) {
  in_child([] {
    forbid_io_uring();
    const auto device = make_pin_device();
    constexpr std::size_t kPages = 2048;
    Memory memory(kPages * page_size());
    memory.touch();
    const std::size_t before = memlock().locked;
    // The program has two ranges: one lies inside a step of Pinion's, the other across two of them.
    const Range programs[] = {memory.pages(3, 10), memory.pages(1000, 1100)};
    for (const Range range : programs) ASSERT_EQ(syscall(SYS_mlock, range.begin, range.bytes()), 0);
    const Registration first = device->register_range(memory.range(), Access::all, Actor::application);
    const Registration second = device->register_range(memory.pages(5, 1050), Access::all, Actor::helper);
    ASSERT_FALSE(first.error || second.error);
    EXPECT_EQ(memlock().locked, before + kPages * page_size());
    EXPECT_FALSE(device->deregister(first.key, Actor::application));
    EXPECT_TRUE(all_locked(memory.pages(5, 1050)));
    for (const Range range : programs) EXPECT_TRUE(all_locked(range));
    EXPECT_FALSE(device->deregister(second.key, Actor::application));
    for (const Range range : programs) EXPECT_TRUE(all_locked(range));
    EXPECT_EQ(memlock().locked, before + 107 * page_size()) << "all that is Pinion's is unlocked";
    // Pages that the program has let go meanwhile are Pinion's alone at the next registration.
    for (const Range range : programs) ASSERT_EQ(syscall(SYS_munlock, range.begin, range.bytes()), 0);
    const Registration third = device->register_range(memory.range(), Access::all, Actor::application);
    EXPECT_FALSE(device->deregister(third.key, Actor::application));
    EXPECT_EQ(memlock().locked, before);
  });
}

TEST(PinDevice, AfterMlockallNothingIsUnlocked) {
  in_child([] {
    forbid_io_uring();
    const auto device = make_pin_device();
    ASSERT_EQ(syscall(SYS_mlockall, MCL_FUTURE), 0);
    Memory memory(8 * page_size());
    const std::size_t before = memlock().locked;
    const Registration r = device->register_range(memory.range(), Access::all, Actor::application);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_FALSE(device->deregister(r.key, Actor::application));
    EXPECT_EQ(memlock().locked, before);
    EXPECT_TRUE(all_locked(memory.range()));
  });
}

// The kernel gives a dead process's part of the user's RLIMIT_MEMLOCK back late.
TEST(PinDevice, ProcessesThatFollowEachOtherAreNotRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user with another limit";
  in_child([] {
    become_ordinary_user(8 << 20);
    for (int i = 0; i < 20; ++i) {
      in_child([] {
        Memory memory(6 << 20);
        memory.touch();
        const Registration r =
            make_pin_device().release()->register_range(memory.range(), Access::all, Actor::application);
        EXPECT_FALSE(r.error) << r.error.message;
      });
    }
  });
}

TEST(PinDevice, PagesAreLockedWhereOtherProcessesOfTheUserHaveTakenTheLimit) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user with another limit";
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  in_child([] {
    become_ordinary_user(8 << 20);
    Memory theirs(6 << 20), memory(6 << 20);
    theirs.touch();
    memory.touch();
    const auto other = make_pin_device(), device = make_pin_device();
    // The part of children that have ended comes back late.
    ASSERT_TRUE(eventually([&] {
      const Registration pinned = other->register_range(theirs.range(), Access::all, Actor::application);
      if (!pinned.error && memlock().locked == 0) return true;
      if (!pinned.error) {
        EXPECT_FALSE(other->deregister(pinned.key, Actor::application));
      }
      return false;
    }));
    const Registration r = device->register_range(memory.range(), Access::all, Actor::application);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_EQ(memlock().locked, memory.range().bytes());
    const Registration more = device->register_range(theirs.range(), Access::all, Actor::application);
    EXPECT_EQ(more.error.code, ENOMEM);
    EXPECT_TRUE(mentions(more.error, {"6M", "8M", "has locked 6M", "ulimit -l"})) << more.error.message;
    EXPECT_FALSE(device->deregister(r.key, Actor::application));
    EXPECT_EQ(memlock().locked, 0u);
  });
}

// The kernel refuses both as memory without rights.
TEST(PinDevice, RefusalsNameTheCause) {
  const auto device = make_pin_device();
  const auto refusal_of = [&](int file, std::size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory, MAP_FAILED);
    const Registration refused =
        device->register_range(Range::of(memory, bytes), Access::write, Actor::application);
    munmap(memory, bytes);
    close(file);
    EXPECT_EQ(refused.error.code, EFAULT);
    return std::string(refused.error.message);
  };
  const int file = memfd_create("pinion_test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(page_size())), 0);
  EXPECT_NE(refusal_of(file, 2 * page_size()).find("beyond the end of its file"), std::string::npos);
#ifdef SYS_memfd_secret
  const int secret = static_cast<int>(syscall(SYS_memfd_secret, 0));
  if (secret < 0) GTEST_SKIP() << "this kernel has no secret memory";
  ASSERT_EQ(ftruncate(secret, static_cast<off_t>(page_size())), 0);
  EXPECT_NE(refusal_of(secret, page_size()).find("closed to devices"), std::string::npos);
#endif
}

TEST(PinDevice, AGuardPageIsNamed) {
#ifndef MADV_GUARD_INSTALL
  constexpr int MADV_GUARD_INSTALL = 102;
#endif
  const std::size_t bytes = 4 * page_size();
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  if (madvise(static_cast<std::byte*>(memory) + 2 * page_size(), page_size(), MADV_GUARD_INSTALL) != 0)
    GTEST_SKIP() << "this kernel has no guard pages";
  const Registration refused =
      make_pin_device()->register_range(Range::of(memory, bytes), Access::write, Actor::application);
  munmap(memory, bytes);
  EXPECT_EQ(refused.error.code, EFAULT);
  EXPECT_TRUE(mentions(refused.error, {"guard pages"})) << refused.error.message;
}

TEST(PinDevice, SlotsRunOutWithAnErrorAndComeBack) {
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  const auto device = make_pin_device();
  Memory memory(page_size());
  memory.touch();
  const std::size_t before = held();
  std::vector<RegistrationKey> keys;
  for (std::size_t i = 0; i < device->capabilities().caps.max_regions; ++i) {
    const Registration r = device->register_range(memory.range(), Access::all, Actor::application);
    ASSERT_FALSE(r.error) << i << ": " << r.error.message;
    keys.push_back(r.key);
  }
  const Registration refused = device->register_range(memory.range(), Access::all, Actor::application);
  EXPECT_EQ(refused.error.code, ENOSPC);
  EXPECT_TRUE(mentions(refused.error, {"16384", "--limit-regions"})) << refused.error.message;
  const Registration others = device->register_range(memory.range(), Access::all, Actor::helper);
  EXPECT_FALSE(others.error) << others.error.message;
  EXPECT_FALSE(device->deregister(others.key, Actor::helper));
  for (RegistrationKey key : keys) EXPECT_FALSE(device->deregister(key, Actor::application));
  EXPECT_TRUE(held_becomes(before));
  const Registration again = device->register_range(memory.range(), Access::all, Actor::application);
  EXPECT_FALSE(again.error) << again.error.message;
}

TEST(PinDevice, RingsOpenAsTheirTablesFill) {
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  const auto device = make_pin_device();
  Memory memory(page_size());
  memory.touch();
  const std::size_t before = open_descriptors();
  std::vector<RegistrationKey> keys;
  const auto register_up_to = [&](std::size_t regions) {
    while (keys.size() < regions) {
      const Registration r = device->register_range(memory.range(), Access::all, Actor::application);
      ASSERT_FALSE(r.error) << r.error.message;
      keys.push_back(r.key);
    }
  };
  register_up_to(64);
  EXPECT_EQ(open_descriptors(), before + 1);
  register_up_to(65);
  EXPECT_EQ(open_descriptors(), before + 2);
  for (RegistrationKey key : keys) EXPECT_FALSE(device->deregister(key, Actor::application));
  keys.clear();
  register_up_to(64);
  EXPECT_EQ(open_descriptors(), before + 2);
}

TEST(PinDevice, ARangeOfOneStepIsPinnedWithoutALookAtItsPages) {
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  in_child([] {
    ASSERT_TRUE(refuse_system_call(SYS_mincore, ENOSYS));
    const auto device = make_pin_device();
    Memory memory(8 * kMiB);  // untouched
    const std::size_t before = held();
    const Registration step =
        device->register_range(memory.pages(0, 4 * kMiB / page_size()), Access::all, Actor::application);
    ASSERT_FALSE(step.error) << step.error.message;
    EXPECT_EQ(held(), before + 4 * kMiB);
    // More than a step is made present first.
    EXPECT_TRUE(device->register_range(memory.range(), Access::all, Actor::application).error);
    EXPECT_FALSE(device->deregister(step.key, Actor::application));
  });
}

TEST(PinDevice, RefusedIoUringFallsBackToLocks) {
  in_child([] {
    const auto early = make_pin_device();
    forbid_io_uring();
    const auto late = make_pin_device();
    EXPECT_NE(late->description().find("mlock"), std::string::npos);
    EXPECT_NE(late->description().find("seccomp"), std::string::npos);
    EXPECT_FALSE(pin_support().io_uring);
    EXPECT_EQ(late->capabilities().caps.max_regions, 0u);
    Memory memory(6 * kMiB);
    for (Device* device : {early.get(), late.get()}) {
      const Memlock before = memlock();
      const Registration writing = device->register_range(memory.range(), Access::write, Actor::helper);
      ASSERT_FALSE(writing.error) << writing.error.message;
      EXPECT_EQ(writing.granted, Access::all);
      const Registration reading = device->register_range(memory.pages(0, 1), Access::read, Actor::helper);
      ASSERT_FALSE(reading.error) << reading.error.message;
      EXPECT_FALSE(includes(reading.granted, Access::write));
      EXPECT_EQ(memlock().locked, before.locked + 6 * kMiB);
      EXPECT_EQ(memlock().pinned, before.pinned);
      EXPECT_FALSE(device->deregister(writing.key, Actor::helper));
      EXPECT_EQ(memlock().locked, before.locked + page_size());
      EXPECT_FALSE(device->deregister(reading.key, Actor::helper));
      EXPECT_EQ(memlock().locked, before.locked);
    }
  });
}

TEST(PinDevice, AForkedChildClosesTheParentsRings) {
  Memory memory(kMiB);
  const std::size_t before = open_descriptors();
  const auto device = make_pin_device();
  const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
  ASSERT_FALSE(made.error) << made.error.message;
  in_child([&] {
    device->abandon_after_fork();
    EXPECT_EQ(open_descriptors(), before);
  });
  EXPECT_FALSE(device->deregister(made.key, Actor::application));
}

TEST(PinDevice, LeaksNoDescriptorAndClosesThemOnExec) {
  Memory memory(kMiB);
  const std::size_t before = open_descriptors();
  {
    const auto device = make_pin_device();
    EXPECT_EQ(open_descriptors(), before) << "rings open when first needed";
    for (Actor actor : kActors) {
      ASSERT_FALSE(device->register_range(memory.range(), Access::all, actor).error);
    }
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code gone;
      if (std::filesystem::read_symlink(entry, gone).string().find("io_uring") == std::string::npos) continue;
      EXPECT_NE(fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, 0);
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

// ---- emulated

CostModel slow_nic() {
  CostModel nic;
  nic.name = "slow";
  nic.register_ns_per_page = 1e5;
  nic.register_ns_base = 1e6;
  nic.deregister_ns_base = 5e5;
  return nic;
}

TEST(EmulatedDevice, TheHelperSleepsOnlyWhereASleepCostsLess) {
  CostModel nic;
  nic.name = "fast";
  nic.register_ns_base = nic.deregister_ns_base = 20'000;
  Memory memory(page_size());
  for (const bool is_slow : {false, true}) {
    const auto device = make_emulated_device(make_pin_device(), is_slow ? slow_nic() : nic);
    const Registration r = device->register_range(memory.range(), Access::all, Actor::helper);
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_FALSE(device->deregister(r.key, Actor::helper));
    if (!is_slow) {
      EXPECT_EQ(device->modelled_sleep_seconds(), 0);
    }
    EXPECT_EQ(device->modelled_busy_seconds(), 0) << "of the application's threads";
  }
}

TEST(EmulatedDevice, LastsAtLeastAsLongAsTheModelSays) {
  const CostModel nic = slow_nic();
  const auto device = make_emulated_device(make_pin_device(), nic);
  Memory memory(8 * page_size());
  const std::size_t before = held();
  for (Actor actor : kActors) {
    const double busy_before = device->modelled_busy_seconds();
    const Time start = monotonic_now();
    const Registration r = device->register_range(memory.range(), Access::all, actor);
    const Time middle = monotonic_now();
    ASSERT_FALSE(r.error) << r.error.message;
    EXPECT_EQ(held(), before + memory.range().bytes());
    const Time resumed = monotonic_now();
    EXPECT_FALSE(device->deregister(r.key, actor));
    const Time end = monotonic_now();
    // The cycle counter is calibrated to better than a thousandth.
    EXPECT_GE(middle - start, nic.register_cost(8) * 999 / 1000);
    EXPECT_GE(end - resumed, nic.deregister_cost(8) * 999 / 1000);
    const double busy = device->modelled_busy_seconds() - busy_before;
    if (actor == Actor::helper) {
      EXPECT_EQ(busy, 0);
    } else {
      EXPECT_GT(busy, 0);
      EXPECT_LE(busy, static_cast<double>(end - start) / kSecond);
    }
  }
  EXPECT_TRUE(held_becomes(before));
}

TEST(EmulatedDevice, KeepsTheCapsOfTheModel) {
  CostModel nic;
  nic.name = "small";
  nic.caps = {3, 8 * page_size(), 16 * page_size()};
  const auto device = make_emulated_device(make_pin_device(), nic);
  EXPECT_EQ(device->capabilities().caps.max_regions, 3u);
  EXPECT_EQ(device->capabilities().caps.max_region_bytes, 8 * page_size());
  Memory memory(16 * page_size());
  const std::size_t before = held();
  const auto attempt = [&](std::size_t pages) {
    return device->register_range(memory.pages(0, pages), Access::all, Actor::application);
  };

  const Registration too_large = attempt(9);
  EXPECT_EQ(too_large.error.code, ENOSPC);
  EXPECT_TRUE(mentions(too_large.error, {"small", "max_region_bytes"})) << too_large.error.message;

  const Registration first = attempt(8);
  const Registration second = attempt(7);
  ASSERT_FALSE(first.error || second.error);
  const Registration too_many_bytes = attempt(2);
  EXPECT_EQ(too_many_bytes.error.code, ENOSPC);
  EXPECT_TRUE(mentions(too_many_bytes.error, {"max_bytes"})) << too_many_bytes.error.message;

  const Registration third = attempt(1);
  ASSERT_FALSE(third.error) << third.error.message;
  const Registration too_many = attempt(1);
  EXPECT_EQ(too_many.error.code, ENOSPC);
  EXPECT_TRUE(mentions(too_many.error, {"max_regions", "3"})) << too_many.error.message;

  EXPECT_FALSE(device->deregister(first.key, Actor::application));
  const Registration fourth = attempt(8);
  EXPECT_FALSE(fourth.error) << fourth.error.message;
  for (const Registration& r : {second, third, fourth})
    EXPECT_FALSE(device->deregister(r.key, Actor::application));
  EXPECT_TRUE(held_becomes(before));
}

TEST(EmulatedDevice, AFailedRegistrationTakesNothingOfTheCaps) {
  CostModel nic;
  nic.caps.max_regions = 1;
  const auto device = make_emulated_device(make_pin_device(), nic);
  Memory memory(4 * page_size());
  memory.unmap(memory.pages(2, 4));
  EXPECT_EQ(device->register_range(memory.range(), Access::all, Actor::application).error.code, EFAULT);
  const Registration r = device->register_range(memory.pages(0, 2), Access::all, Actor::application);
  EXPECT_FALSE(r.error) << r.error.message;
}

TEST(EmulatedDevice, ForkedChildStartsAnew) {
  CostModel nic;
  nic.caps.max_regions = 1;
  const auto device = make_emulated_device(make_pin_device(), nic);
  Memory memory(4 * page_size());
  const Registration parents = device->register_range(memory.range(), Access::all, Actor::application);
  ASSERT_FALSE(parents.error) << parents.error.message;
  in_child([&] {
    device->abandon_after_fork();
    EXPECT_FALSE(device->deregister(parents.key, Actor::application));
    EXPECT_FALSE(device->register_range(memory.range(), Access::all, Actor::application).error);
    EXPECT_EQ(held(), memory.range().bytes());
  });
}

TEST(EmulatedDevice, ManyThreads) {
  CostModel nic;
  nic.register_ns_base = 2000;
  register_concurrently(*make_emulated_device(make_pin_device(), nic));
}

constexpr std::uint64_t kAllSizes = ~std::uint64_t{0};

TEST(TranslationEntries, OrdinaryPages) {
  Memory memory(64 * page_size());
  EXPECT_EQ(translation_entries(memory.range(), kAllSizes), 64u);
  EXPECT_EQ(translation_entries(memory.pages(3, 4), kAllSizes), 1u);
}

/// Memory on transparent hugepages, and its surroundings on ordinary pages.
class HugeMemory {
 public:
  static constexpr std::size_t kHuge = 2 * kMiB;
  HugeMemory() {
    start_ = mmap(nullptr, 6 * kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const Address begin = (reinterpret_cast<Address>(start_) + 2 * kHuge - 1) / kHuge * kHuge;
    range = {begin, begin + 3 * kHuge};
    madvise(start_, 6 * kHuge, MADV_NOHUGEPAGE);
    madvise(reinterpret_cast<void*>(range.begin), range.bytes(), MADV_HUGEPAGE);
    std::memset(start_, 1, 6 * kHuge);
  }
  ~HugeMemory() { munmap(start_, 6 * kHuge); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  /// Whether the system gave hugepages, and shows them (Linux 6.7).
  bool is_huge() const { return translation_entries(range, kAllSizes) == 3; }

  Range range{};

 private:
  void* start_;
};

TEST(TranslationEntries, TransparentHugepages) {
  const HugeMemory memory;
  if (!memory.is_huge()) {
    EXPECT_EQ(translation_entries(memory.range, kAllSizes), memory.range.pages());
    GTEST_SKIP() << "no transparent hugepages of 2 MiB here, or a kernel that does not show them";
  }
  const auto [begin, end] = memory.range;
  const std::size_t page = page_size(), huge = HugeMemory::kHuge;
  EXPECT_EQ(translation_entries({begin + page, end - page}, kAllSizes), 3u) << "begins and ends inside";
  EXPECT_EQ(translation_entries({begin + page, begin + 17 * page}, kAllSizes), 1u);
  EXPECT_EQ(translation_entries({begin + huge - page, begin + huge + page}, kAllSizes), 2u);
  EXPECT_EQ(translation_entries({begin - page, end}, kAllSizes), memory.range.pages() + 1)
      << "an ordinary page beside makes all of them ordinary";
  EXPECT_EQ(translation_entries(memory.range, page), memory.range.pages())
      << "of a device without large entries";
  EXPECT_EQ(translation_entries(memory.range, page | (64 << 10)), memory.range.bytes() / (64 << 10));
  EXPECT_EQ(translation_entries(memory.range, 0), memory.range.pages());
}

TEST(TranslationEntries, TheProgramClosesTheKeptFiles) {
  const HugeMemory memory;
  if (!memory.is_huge()) GTEST_SKIP() << "no transparent hugepages of 2 MiB here";
  const PageFiles files;
  EXPECT_EQ(translation_entries(memory.range, kAllSizes, files), 3u);
  const int kept = files.pagemap().get();
  ASSERT_GE(kept, 0);
  ASSERT_EQ(::close(kept), 0);
  ASSERT_EQ(::close(files.maps().get()), 0);
  EXPECT_EQ(translation_entries(memory.range, kAllSizes, files), 3u);
  const int own = ::dup2(STDERR_FILENO, kept);
  ASSERT_EQ(own, kept);
  EXPECT_EQ(translation_entries(memory.range, kAllSizes, files), 3u);
  EXPECT_EQ(::close(own), 0) << "left alone";
}

TEST(TranslationEntries, PinnedHugepagesStayHuge) {
  const HugeMemory memory;
  if (!memory.is_huge()) GTEST_SKIP() << "no transparent hugepages of 2 MiB here, or none that are shown";
  CostModel nic;
  nic.name = "counted";
  const auto device = make_emulated_device(make_pin_device(), nic);
  const Registration made = device->register_range(memory.range, Access::all, Actor::application);
  ASSERT_FALSE(made.error) << made.error.message;
  EXPECT_EQ(made.entries, 3u);
  EXPECT_FALSE(device->deregister(made.key, Actor::application));
}

TEST(PageRuns, AreCutWhereHugepagesMeetOrdinaryOnes) {
  const HugeMemory memory;
  if (!memory.is_huge()) GTEST_SKIP() << "no transparent hugepages of 2 MiB here, or none that are shown";
  const auto [begin, end] = memory.range;
  const std::size_t page = page_size(), huge = HugeMemory::kHuge;
  const PageFiles files;
  using Ranges = std::vector<Range>;
  const auto check = [&](Range range, const Ranges& in_hugepages, const Ranges& ordinary) {
    const PageRuns runs(range, files);
    EXPECT_EQ(Ranges(runs.in_hugepages().begin(), runs.in_hugepages().end()), in_hugepages);
    EXPECT_EQ(Ranges(runs.ordinary().begin(), runs.ordinary().end()), ordinary);
  };
  check(memory.range, {memory.range}, {});
  check({begin + page, begin + 65 * page}, {{begin + page, begin + 65 * page}}, {});
  check({begin + page, begin + 3 * page}, {}, {{begin + page, begin + 3 * page}});
  check({begin - 2 * page, begin}, {}, {{begin - 2 * page, begin}});
  check({begin - 2 * page, end + page}, {memory.range}, {{begin - 2 * page, begin}, {end, end + page}});
  // One page of the second hugepage goes: the kernel maps the rest of it page by page.
  ASSERT_EQ(madvise(reinterpret_cast<void*>(begin + huge + 5 * page), page, MADV_DONTNEED), 0);
  check(memory.range, {{begin, begin + huge}, {begin + 2 * huge, end}}, {{begin + huge, begin + 2 * huge}});
}

/// The buffers in each ring of this process, by the kernel's text about the rings.
std::vector<std::vector<Range>> buffers_of_rings() {
  std::vector<std::vector<Range>> rings;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream text(entry.path());
    std::string line;
    while (std::getline(text, line) && line.rfind("UserBufs:", 0) != 0) continue;
    std::vector<Range> buffers;
    unsigned long slot, begin, bytes;
    while (std::getline(text, line) && std::sscanf(line.c_str(), " %lu: %lx/%lu", &slot, &begin, &bytes) == 3)
      if (bytes > 0) buffers.push_back({begin, begin + bytes});
    if (!buffers.empty()) rings.push_back(buffers);
  }
  return rings;
}

TEST(PinDevice, HugepagesAndOrdinaryPagesNeverShareARing) {
  const HugeMemory memory;
  if (!memory.is_huge()) GTEST_SKIP() << "no transparent hugepages of 2 MiB here, or none that are shown";
  if (!pin_support().io_uring) GTEST_SKIP() << pin_support().io_uring_refused;
  const auto device = make_pin_device();
  const std::size_t before = held(), page = page_size();
  const Range across{memory.range.begin - 3 * page, memory.range.end + 2 * page};
  const Registration made = device->register_range(across, Access::all, Actor::application);
  ASSERT_FALSE(made.error) << made.error.message;
  const auto rings = buffers_of_rings();
  const std::vector<Range> huge{memory.range};
  const std::vector<Range> ordinary{{across.begin, memory.range.begin}, {memory.range.end, across.end}};
  ASSERT_EQ(rings.size(), 2u);
  EXPECT_TRUE((rings[0] == huge && rings[1] == ordinary) || (rings[0] == ordinary && rings[1] == huge));
  EXPECT_EQ(held(), before + across.bytes());
  EXPECT_FALSE(device->deregister(made.key, Actor::application));
  EXPECT_TRUE(held_becomes(before));
  EXPECT_TRUE(buffers_of_rings().empty());
}

TEST(TranslationEntries, HugetlbPages) {
  constexpr std::size_t kHuge = 2 * kMiB;
  const test::HugepagePool pool(2);
  void* const start = mmap(nullptr, 2 * kHuge, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT), -1, 0);
  if (start == MAP_FAILED) GTEST_SKIP() << "no 2 MiB hugetlb pages are reserved";
  const Range range = Range::of(start, 2 * kHuge);
  const std::size_t entries = translation_entries(range, kAllSizes);
  EXPECT_TRUE(entries == 2 || entries == range.pages()) << entries;  // the latter before Linux 6.7
  if (entries == 2) {
    EXPECT_EQ(translation_entries({range.begin, range.begin + page_size()}, kAllSizes), 1u);
    EXPECT_EQ(translation_entries({range.begin + page_size(), range.end}, kAllSizes), 2u);
  }
  munmap(start, 2 * kHuge);
}

// ---- model

Range model_pages(std::size_t begin, std::size_t end) { return {begin * page_size(), end * page_size()}; }

TEST(ModelDevice, CostsVirtualTime) {
  VirtualClock clock;
  const CostModel nic = load_cost_model("connectx").model;
  ModelDevice device(nic, &clock);
  const Registration r = device.register_range(model_pages(1, 101), Access::write, Actor::application);
  ASSERT_FALSE(r.error) << r.error.message;
  EXPECT_EQ(r.granted, Access::write);
  EXPECT_EQ(clock.now(), nic.register_cost(100));
  EXPECT_FALSE(device.deregister(r.key, Actor::helper));
  EXPECT_EQ(clock.now(), nic.register_cost(100) + nic.deregister_cost(100));
  EXPECT_EQ(device.registrations(), 1u);
  EXPECT_EQ(device.deregistrations(), 1u);
}

TEST(ModelDevice, KnowsWhatIsLive) {
  ModelDevice device(CostModel{});
  const Registration first = device.register_range(model_pages(0, 4), Access::read, Actor::application);
  const Registration second = device.register_range(model_pages(2, 8), Access::read, Actor::application);
  EXPECT_EQ(device.live_regions(), 2u);
  EXPECT_EQ(device.live_bytes(), 10 * page_size());
  EXPECT_TRUE(device.is_live(first.key));
  EXPECT_TRUE(device.overlaps_live(model_pages(7, 9)));
  EXPECT_FALSE(device.overlaps_live(model_pages(8, 9)));
  EXPECT_FALSE(device.deregister(second.key, Actor::application));
  EXPECT_FALSE(device.is_live(second.key));
  EXPECT_FALSE(device.overlaps_live(model_pages(7, 9)));
  EXPECT_EQ(device.live_bytes(), 4 * page_size());
  EXPECT_DEBUG_DEATH(static_cast<void>(device.deregister(second.key, Actor::application)), "not registered");
  EXPECT_FALSE(device.deregister(first.key, Actor::application));
  EXPECT_EQ(device.live_regions(), 0u);
}

TEST(ModelDevice, FailsEveryKthRegistration) {
  VirtualClock clock;
  ModelDevice device(slow_nic(), &clock);
  device.fail_every(3, EPERM);
  for (int i = 1; i <= 9; ++i) {
    const Time before = clock.now();
    const Registration r = device.register_range(model_pages(0, 1), Access::read, Actor::application);
    EXPECT_EQ(r.error.code, i % 3 == 0 ? EPERM : 0) << i;
    EXPECT_EQ(clock.now() == before, i % 3 == 0) << i;
  }
  EXPECT_EQ(device.live_regions(), 6u);
}

TEST(ModelDevice, IsInterruptedInTheMiddleOfARegistration) {
  ModelDevice device(CostModel{});
  std::vector<Range> seen;
  device.during_registration([&](Range range) {
    seen.push_back(range);
    EXPECT_FALSE(device.overlaps_live(range));
  });
  const Registration r = device.register_range(model_pages(5, 6), Access::read, Actor::application);
  EXPECT_EQ(seen, std::vector<Range>{model_pages(5, 6)});
  EXPECT_TRUE(device.is_live(r.key));
}

TEST(ModelDevice, KeepsTheCapsOfTheModel) {
  CostModel nic;
  nic.caps.max_regions = 1;
  ModelDevice device(nic);
  const Registration r = device.register_range(model_pages(0, 1), Access::read, Actor::application);
  ASSERT_FALSE(r.error) << r.error.message;
  const Registration refused = device.register_range(model_pages(0, 1), Access::read, Actor::application);
  EXPECT_EQ(refused.error.code, ENOSPC);
  EXPECT_TRUE(mentions(refused.error, {"max_regions"})) << refused.error.message;
  EXPECT_FALSE(device.deregister(r.key, Actor::application));
  EXPECT_FALSE(device.register_range(model_pages(0, 1), Access::read, Actor::application).error);
}

// ---- by name

TEST(MakeDevice, MakesEveryKind) {
  std::size_t count = 0;
  const DeviceKind* kinds = device_kinds(&count);
  EXPECT_EQ(count, 6u);
  for (std::size_t i = 0; i < count; ++i) {
    const DeviceResult made = make_device(kinds[i].name, "connectx");
    if (made.error && std::string(kinds[i].name).starts_with("verbs")) {
      // Without a NIC: the library, the device or its headers are named.
      EXPECT_TRUE(mentions(made.error, {"RDMA device"}) || mentions(made.error, {"libibverbs"}))
          << made.error.message;
      continue;
    }
    if (made.error && std::string(kinds[i].name) == "fabric") {
      EXPECT_TRUE(mentions(made.error, {"libfabric"})) << made.error.message;
      continue;
    }
    ASSERT_FALSE(made.error) << made.error.message;
    const std::string kind = kinds[i].name;
    EXPECT_EQ(made.device->name(), kind == kAutoDevice ? "none" : kind);
    EXPECT_FALSE(made.device->description().empty());
  }
}

TEST(MakeDevice, ErrorsListTheValidNames) {
  const DeviceResult device = make_device("quadrics", "none");
  EXPECT_EQ(device.error.code, EINVAL);
  EXPECT_TRUE(mentions(device.error, {"quadrics", "pin", "emulated"})) << device.error.message;
  const DeviceResult nic = make_device("emulated", "elan4");
  EXPECT_EQ(nic.error.code, EINVAL);
  EXPECT_TRUE(mentions(nic.error, {"elan4", "connectx"})) << nic.error.message;
  EXPECT_EQ(nic.device, nullptr);
}

}  // namespace
}  // namespace pinion
