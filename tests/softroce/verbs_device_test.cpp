// The verbs device on a real kernel RDMA stack: the rights of its keys, the pages that the kernel pins for
// it, and its refusals. Runs in the virtual machine (tests/e2e/softroce.sh).
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "device/kernel/memlock.h"
#include "device/make.h"
#include "device/verbs/verbs.h"
#include "device/verbs/verbs_library.h"
#include "few_objects.h"
#include "queue_pair.h"

namespace pinion {
namespace {

constexpr std::size_t kBytes = std::size_t{1} << 20;

/// Anonymous memory on ordinary pages: whole hugepages are counted as pinned otherwise.
class Memory {
 public:
  Memory() : start_(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    madvise(start_, kBytes, MADV_NOHUGEPAGE);
  }
  ~Memory() { munmap(start_, kBytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* start() const { return static_cast<char*>(start_); }
  Range range() const {
    return {reinterpret_cast<Address>(start_), reinterpret_cast<Address>(start_) + kBytes};
  }

 private:
  void* start_;
};

std::unique_ptr<Device> open(const std::string& name = "verbs") {
  DeviceResult made = make_device(name, "none");
  EXPECT_FALSE(made.error) << made.error.message;
  return std::move(made.device);
}

TEST(VerbsDevice, SaysWhatItIsAndWhatItTakes) {
  const auto device = open();
  EXPECT_EQ(device->description(), "registers with RDMA device rxe0, port 1");
  EXPECT_GT(device->capabilities().caps.max_regions, 1000u);
  EXPECT_GT(device->capabilities().caps.max_region_bytes, std::size_t{1} << 30);
  EXPECT_NE(open("verbs:rxe0"), nullptr);
  EXPECT_NE(open("verbs:rxe0:1"), nullptr);
}

TEST(VerbsDevice, AContextTellsWhichCopyOfTheLibraryOpenedIt) {
  const LoopedQueuePair pair;
  const void* const provider = code_of_provider(*pair.pd()->context);
  ASSERT_NE(provider, nullptr);
  const VerbsLibrary* const library = verbs_library_behind(provider);
  ASSERT_NE(library, nullptr);
  void* const there = ::dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  EXPECT_EQ(reinterpret_cast<void*>(library->dereg_mr), ::dlsym(there, "ibv_dereg_mr"));
  EXPECT_EQ(reinterpret_cast<void*>(library->reg_mr), ::dlsym(there, "ibv_reg_mr"));
  EXPECT_EQ(verbs_library_behind(reinterpret_cast<const void*>(&std::memcpy)), nullptr);
}

TEST(VerbsDevice, NamesWhatThereIsWhereTheChoiceIsNone) {
  for (const char* const wrong : {"verbs:mlx5_0", "verbs:rxe0:2"}) {
    const DeviceResult made = make_device(wrong, "none");
    EXPECT_EQ(made.error.code, ENODEV) << wrong;
    EXPECT_NE(std::string(made.error.message).find("there are: rxe0"), std::string::npos)
        << made.error.message;
  }
  EXPECT_EQ(make_device("verbs:rxe0:none", "none").error.code, EINVAL);
}

TEST(VerbsDevice, PinsWhatItRegistersAndNothingAfter) {
  const auto device = open();
  const Memory memory;
  const std::size_t before = memlock().pinned;
  const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
  ASSERT_FALSE(made.error) << made.error.message;
  EXPECT_EQ(memlock().pinned - before, kBytes);
  EXPECT_FALSE(device->deregister(made.key, Actor::helper));
  EXPECT_EQ(memlock().pinned, before);
}

TEST(VerbsDevice, ItsKeysMoveData) {
  LoopedQueuePair pair;
  VerbsDeviceResult in = make_verbs_device(pair.pd());
  ASSERT_FALSE(in.error) << in.error.message;
  const Memory source, target;
  std::memset(source.start(), 'x', kBytes);
  const Registration from = in.device->register_range(source.range(), Access::read, Actor::application);
  const Registration to = in.device->register_range(target.range(), Access::remote_write, Actor::helper);
  ASSERT_FALSE(from.error || to.error);
  EXPECT_EQ(pair.write(source.start(), from.key.lkey, target.start(), to.key.remote_key, kBytes),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(source.start(), target.start(), kBytes), 0);
  EXPECT_FALSE(in.device->deregister(from.key, Actor::application));
  EXPECT_FALSE(in.device->deregister(to.key, Actor::application));
}

TEST(VerbsDevice, NoKeyOutlivesItsRegistrationNorItsRights) {
  const Memory source, target;
  for (const bool deregistered : {true, false}) {
    LoopedQueuePair pair;  // an error is the end of one
    VerbsDeviceResult in = make_verbs_device(pair.pd());
    ASSERT_FALSE(in.error) << in.error.message;
    const Registration from = in.device->register_range(source.range(), Access::read, Actor::application);
    const Registration to = in.device->register_range(
        target.range(), deregistered ? Access::all : Access::write, Actor::application);
    ASSERT_FALSE(from.error || to.error);
    if (deregistered) {
      EXPECT_FALSE(in.device->deregister(to.key, Actor::application));
    }
    EXPECT_EQ(pair.write(source.start(), from.key.lkey, target.start(), to.key.remote_key, 4096),
              IBV_WC_REM_ACCESS_ERR);
    EXPECT_FALSE(in.device->deregister(from.key, Actor::application));
    if (!deregistered) {
      EXPECT_FALSE(in.device->deregister(to.key, Actor::application));
    }
  }
}

TEST(VerbsDevice, ReadOnlyMemoryIsRegisteredForReadingAlone) {
  const auto device = open();
  const Memory memory;
  std::memset(memory.start(), 1, kBytes);
  ASSERT_EQ(mprotect(memory.start(), kBytes, PROT_READ), 0);
  EXPECT_EQ(device->register_range(memory.range(), Access::write, Actor::application).error.code, EFAULT);
  const Registration made = device->register_range(memory.range(), Access::read, Actor::application);
  ASSERT_FALSE(made.error) << made.error.message;
  EXPECT_FALSE(device->deregister(made.key, Actor::application));
}

TEST(VerbsDevice, WhatIsNotMappedIsRefused) {
  const auto device = open();
  Range hole;
  {
    const Memory memory;
    hole = memory.range();
  }
  EXPECT_EQ(device->register_range(hole, Access::read, Actor::application).error.code, EFAULT);
}

/// The status of a child that does `body`.
template <class F>
int in_child(F&& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(VerbsDevice, TheLimitOfLockedMemoryIsNamed) {
  const auto refused = [] {
    const rlimit limit{kBytes / 2, kBytes / 2};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || setuid(65534) != 0) return 10;
    const auto device = open();
    const Memory memory;
    const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
    if (made.error.code != ENOMEM) return 11;
    return std::strstr(made.error.message, "RLIMIT_MEMLOCK) is 512K") != nullptr ? 0 : 12;
  };
  EXPECT_EQ(in_child(refused), 0);
}

TEST(VerbsDevice, ADeviceThatIsFullIsNamed) {
  const auto refused = [] {
    if (!have_few_objects(10)) return 10;
    const auto device = open();
    const Memory memory;
    for (int i = 0; i < 10; ++i) {
      const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
      if (made.error.code == 0) continue;
      if (made.error.code != ENOSPC) return 11;
      return std::strstr(made.error.message, "rxe0 has no room for a region of 1M") != nullptr ? 0 : 12;
    }
    return 13;
  };
  EXPECT_EQ(in_child(refused), 0);
}

TEST(VerbsDevice, AForkedChildHasItsOwnAndLeavesTheParentsAlone) {
  LoopedQueuePair pair;
  VerbsDeviceResult in = make_verbs_device(pair.pd());
  ASSERT_FALSE(in.error) << in.error.message;
  const auto own = open();
  const Memory source, target;
  std::memset(source.start(), 'y', kBytes);
  const Registration from = in.device->register_range(source.range(), Access::read, Actor::application);
  const Registration to = in.device->register_range(target.range(), Access::remote_write, Actor::application);
  const Registration parents = own->register_range(source.range(), Access::read, Actor::application);
  ASSERT_FALSE(from.error || to.error || parents.error);
  const auto child = [&] {
    in.device->abandon_after_fork();
    own->abandon_after_fork();
    EXPECT_FALSE(in.device->deregister(to.key, Actor::application));
    EXPECT_FALSE(own->deregister(parents.key, Actor::application));
    if (in.device->register_range(source.range(), Access::read, Actor::application).error.code != ENODEV)
      return 1;
    const Registration made = own->register_range(source.range(), Access::read, Actor::application);
    if (made.error) return 2;
    EXPECT_FALSE(own->deregister(made.key, Actor::application));
    return 0;
  };
  EXPECT_EQ(in_child(child), 0);
  EXPECT_EQ(pair.write(source.start(), from.key.lkey, target.start(), to.key.remote_key, kBytes),
            IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(source.start(), target.start(), kBytes), 0);
  EXPECT_FALSE(in.device->deregister(from.key, Actor::application));
  EXPECT_FALSE(in.device->deregister(to.key, Actor::application));
  EXPECT_FALSE(own->deregister(parents.key, Actor::application));
}

}  // namespace
}  // namespace pinion
