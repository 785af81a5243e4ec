// Device fabric over a libfabric that is made up: all modes of registration, and every call of a provider
// that fails. Transfers over real providers: fabric_providers_test.cpp.
#include "device/fabric/fabric.h"

#ifdef PINION_HAS_LIBFABRIC
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "device/kernel/pin.h"
#include "pinion/pinion.h"
#include "support/device_battery.h"
#include "support/in_child.h"
#include "support/made_fabric.h"
#include "support/pinned_memory.h"

namespace pinion {
namespace {

using namespace test;

constexpr int kAllModes =
    FI_MR_LOCAL | FI_MR_RAW | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

std::unique_ptr<Device> open(MadeFabric& fabric, const std::string& choice = "") {
  FabricDeviceResult made = make_fabric_device(fabric.library(), choice);
  EXPECT_FALSE(made.error) << made.error.message;
  return std::move(made.device);
}

std::vector<DeviceMaker> makers() {
  return {{"MadeUp", [] {
             static auto* const fabric = new MadeFabric({{"tcp;ofi_rxm"}});
             FabricDeviceResult made = make_fabric_device(fabric->library(), "");
             return DeviceResult{made.error, std::move(made.device)};
           }}};
}
INSTANTIATE_TEST_SUITE_P(Fabric, PinningDevice, ::testing::ValuesIn(makers()), name_of);

TEST(FabricDevice, AProviderThatRefusesTheFlagIsAskedWithItOnce) {
  MadeFabric fabric({{"verbs"}});
  fabric.known_flags = 0;
  const auto device = open(fabric);
  ASSERT_NE(device, nullptr);
  Memory memory(kMiB);
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_FALSE(device->register_range(memory.range(), Access::all, Actor::application).error);
  EXPECT_EQ(fabric.asked, 5u) << "with one when it was opened (hidden_from_children.h)";
}

// Without the flag a region would stay pinned in libfabric's cache.
TEST(FabricDevice, AProviderThatTakesTheFlagIsNeverAskedWithoutIt) {
  MadeFabric fabric({{"verbs"}});
  const auto device = open(fabric);
  ASSERT_NE(device, nullptr);
  Memory memory(kMiB);
  ASSERT_FALSE(device->register_range(memory.range(), Access::all, Actor::application).error);
  EXPECT_NE(fabric.regions()[0].flags, 0u);
  fabric.refuse = [](const std::string& call) { return call == "fi_mr_reg" ? -FI_EINVAL : 0; };
  EXPECT_TRUE(device->register_range(memory.range(), Access::all, Actor::application).error);
  EXPECT_EQ(fabric.asked, 3u) << "with one when it was opened";
}

TEST(FabricDevice, EveryModeOfRegistration) {
  for (const int mode : {0, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED, FI_MR_PROV_KEY, FI_MR_ENDPOINT,
                         FI_MR_RAW | FI_MR_PROV_KEY, kMrBasic, kMrScalable, kAllModes}) {
    SCOPED_TRACE(mode);
    MadeFabric fabric({{"cxi", mode}});
    const auto device = open(fabric);
    ASSERT_NE(device, nullptr);
    const bool basic = mode == kMrBasic;
    const bool bound = (mode & FI_MR_ENDPOINT) != 0, raw = (mode & FI_MR_RAW) != 0;
    EXPECT_EQ(device->capabilities().needs_endpoint, bound);
    Memory memory(kMiB);
    const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
    ASSERT_FALSE(made.error) << made.error.message;
    ASSERT_EQ(fabric.live(), 1u);
    const MadeFabric::Region region = fabric.regions()[0];
    EXPECT_EQ(region.address, reinterpret_cast<void*>(memory.range().begin));
    EXPECT_EQ(region.bytes, kMiB);
    EXPECT_EQ(region.bound, bound);
    EXPECT_EQ(region.enabled, bound);
    EXPECT_EQ(made.key.endpoint, bound ? &fabric.endpoint : nullptr);
    EXPECT_NE(made.key.descriptor, nullptr);
    if (raw) {
      EXPECT_EQ(std::string(static_cast<const char*>(made.key.raw_key), made.key.raw_key_bytes),
                fabric.raw_key);
      EXPECT_EQ(made.key.remote_base, MadeFabric::kRawBase);
    } else {
      EXPECT_EQ(made.key.raw_key, nullptr);
      EXPECT_EQ(made.key.remote_base, basic || (mode & FI_MR_VIRT_ADDR) ? memory.range().begin : 0);
      const bool providers = basic || (mode & FI_MR_PROV_KEY) != 0;
      EXPECT_EQ(made.key.remote_key, providers ? MadeFabric::kItsKey : region.key);
    }
    EXPECT_FALSE(device->deregister(made.key, Actor::helper));
  }
}

TEST(FabricDevice, RightsAreExactlyThoseAskedFor) {
  MadeFabric fabric({{"tcp"}});
  const auto device = open(fabric);
  Memory memory(kMiB);
  constexpr std::uint64_t kOut = FI_SEND | FI_WRITE, kIn = FI_RECV | FI_READ;
  const std::pair<Access, std::uint64_t> cases[] = {
      {Access::read, kOut},
      {Access::write, kOut | kIn},
      {Access::remote_read, kOut | FI_REMOTE_READ},
      {Access::remote_write, kOut | kIn | FI_REMOTE_WRITE},
      {Access::all, kOut | kIn | FI_REMOTE_READ | FI_REMOTE_WRITE}};
  for (const auto& [access, rights] : cases) {
    const Registration made = device->register_range(memory.range(), access, Actor::application);
    ASSERT_FALSE(made.error) << made.error.message;
    EXPECT_EQ(made.granted, access);
    EXPECT_EQ(fabric.regions().at(0).access, rights);
    EXPECT_FALSE(device->deregister(made.key, Actor::application));
  }
}

TEST(FabricDevice, TheKernelPinsWhereTheProviderDoesNot) {
  Memory memory(kMiB);
  const std::size_t before = held();
  for (const char* provider :
       {"tcp;ofi_rxm", "sockets", "udp;ofi_rxd", "net", "shm", "verbs;ofi_rxd", "verbs;ofi_rxm", "efa"}) {
    SCOPED_TRACE(provider);
    const bool pins = std::string(provider) == "verbs;ofi_rxm" || std::string(provider) == "efa";
    MadeFabric fabric({{provider}});
    const auto device = open(fabric);
    const Registration made = device->register_range(memory.range(), Access::all, Actor::helper);
    ASSERT_FALSE(made.error) << made.error.message;
    EXPECT_EQ(held(), before + (pins ? 0 : kMiB));
    const std::string text = device->description();
    EXPECT_NE(text.find(provider), std::string::npos) << text;
    EXPECT_EQ(text.find("pins nothing; pins pages by") == std::string::npos, pins) << text;
    EXPECT_FALSE(device->capabilities().hides_from_children);
    EXPECT_FALSE(device->deregister(made.key, Actor::helper));
    EXPECT_TRUE(held_becomes(before));
  }
}

TEST(FabricDevice, TheBestProviderIsTakenOrTheOneThatIsNamed) {
  MadeFabric fabric({{"tcp;ofi_rxm"}, {"udp", 0, 8, FI_MSG}, {"verbs;ofi_rxm"}, {"shm", FI_MR_VIRT_ADDR}});
  const auto opens = [&](const char* choice, const char* provider) {
    const std::string text = open(fabric, choice)->description();
    EXPECT_NE(text.find(std::string("provider ") + provider + " (made0)"), std::string::npos) << text;
  };
  opens("", "verbs;ofi_rxm");
  opens("verbs", "verbs;ofi_rxm");
  opens("tcp", "tcp;ofi_rxm");
  opens("tcp;ofi_rxm", "tcp;ofi_rxm");
  opens("shm", "shm");
  for (const char* unknown : {"udp", "gni", "tc"}) {
    const FabricDeviceResult refused = make_fabric_device(fabric.library(), unknown);
    EXPECT_EQ(refused.error.code, ENODEV);
    EXPECT_TRUE(mentions(refused.error, {unknown, "there are: tcp;ofi_rxm, verbs;ofi_rxm, shm"}))
        << refused.error.message;
  }
  MadeFabric none({});
  EXPECT_TRUE(mentions(make_fabric_device(none.library(), "").error, {"there are: none"}));
}

TEST(FabricDevice, KeysNeverMeetTheProgramsAndDoNotComeBack) {
  MadeFabric fabric({{"tcp", 0, 1}});
  for (std::uint64_t key = 250; key < 256; ++key) fabric.taken.insert(key);
  const auto device = open(fabric);
  Memory memory(kMiB);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 250; ++i) {
    const Registration made = device->register_range(memory.pages(0, 1), Access::read, Actor::application);
    ASSERT_FALSE(made.error) << made.error.message;
    EXPECT_TRUE(seen.insert(made.key.remote_key).second) << "an old key came back";
    EXPECT_LT(made.key.remote_key, 250u);
    EXPECT_FALSE(device->deregister(made.key, Actor::application));
  }
  for (std::uint64_t key = 0; key < 250; ++key) fabric.taken.insert(key);
  const Registration refused = device->register_range(memory.pages(0, 1), Access::read, Actor::application);
  EXPECT_EQ(refused.error.code, ENOSPC);
  EXPECT_TRUE(mentions(refused.error, {"no key is free"})) << refused.error.message;
}

TEST(FabricDevice, AnyCallMayFailAndLeavesNothing) {
  Memory memory(kMiB);
  const std::size_t before = held();
  int failing = 0;
  for (bool failed = true; failed; ++failing) {
    SCOPED_TRACE(failing);
    MadeFabric fabric({{"tcp", kAllModes, 4}});
    int calls = 0;
    std::string name;
    failed = false;
    fabric.refuse = [&](const std::string& call) {
      if (call == "fi_close" || calls++ != failing) return 0;
      failed = true;
      name = call;
      return -FI_EIO;
    };
    const FabricDeviceResult made = make_fabric_device(fabric.library(), "");
    if (made.device) {
      const Registration first = made.device->register_range(memory.range(), Access::all, Actor::application);
      EXPECT_EQ(first.error.code, failed ? EIO : 0) << name;
      EXPECT_EQ(fabric.live(), failed ? 0u : 1u) << name;
      if (!first.error) {
        EXPECT_FALSE(made.device->deregister(first.key, Actor::application));
      }
      EXPECT_TRUE(held_becomes(before)) << name;
    } else {
      EXPECT_EQ(made.error.code, EIO) << name;
      EXPECT_TRUE(failed);
    }
  }
  EXPECT_GT(failing, 10) << "calls that may fail";
  EXPECT_TRUE(held_becomes(before));
}

TEST(FabricDevice, WhatRefusesToGoIsTriedAgain) {
  Memory memory(kMiB);
  const std::size_t before = held();
  MadeFabric fabric({{"tcp"}});
  auto device = open(fabric);
  const Registration made = device->register_range(memory.range(), Access::all, Actor::application);
  int refusals = 1;
  fabric.refuse = [&](const std::string& call) {
    return call == "fi_close" && refusals-- > 0 ? -FI_EBUSY : 0;
  };
  EXPECT_EQ(device->deregister(made.key, Actor::application).code, EBUSY);
  EXPECT_EQ(held(), before + kMiB) << "unpinned under a registration";
  EXPECT_FALSE(device->deregister(made.key, Actor::helper));
  EXPECT_TRUE(held_becomes(before));
  // A registration that was half made is unpinned too; the end of the device lets it go.
  device.reset();
  MadeFabric bound({{"tcp", FI_MR_ENDPOINT}});
  device = open(bound);
  refusals = 1;
  bound.refuse = [&](const std::string& call) {
    if (call == "fi_mr_enable") return -FI_EIO;
    return call == "fi_close" && refusals-- > 0 ? -FI_EBUSY : 0;
  };
  EXPECT_EQ(device->register_range(memory.range(), Access::all, Actor::application).error.code, EIO);
  EXPECT_EQ(bound.live(), 1u);
  device.reset();
  EXPECT_EQ(bound.live(), 0u);
  EXPECT_TRUE(held_becomes(before));
}

TEST(FabricDevice, RefusalsAreErrnoValues) {
  MadeFabric fabric({{"verbs;ofi_rxm", FI_MR_PROV_KEY}});
  const auto device = open(fabric);
  Memory memory(kMiB);
  const std::pair<int, int> cases[] = {{FI_EAGAIN, ENOSPC}, {FI_EBUSY, ENOSPC},  {FI_EINVAL, ENOSPC},
                                       {FI_ENOSPC, ENOSPC}, {FI_EFAULT, EFAULT}, {FI_EACCES, EACCES},
                                       {FI_EOTHER, EIO}};
  for (const auto& [theirs, ours] : cases) {
    fabric.refuse = [&, code = theirs](const std::string& call) { return call == "fi_mr_reg" ? -code : 0; };
    const Error error = device->register_range(memory.range(), Access::all, Actor::application).error;
    EXPECT_EQ(error.code, ours) << theirs << ": " << error.message;
  }
}

TEST(FabricDevice, CapsAreTheProvidersAndTheKernels) {
  for (const char* provider : {"efa", "tcp"}) {
    MadeFabric fabric({{provider, 0, 8, FI_MSG | FI_RMA, 100}});
    EXPECT_EQ(open(fabric)->capabilities().caps.max_regions, 100u);
    EXPECT_TRUE(open(fabric)->capabilities().remote);
  }
  MadeFabric fabric({{"tcp"}});
  EXPECT_EQ(open(fabric)->capabilities().caps.max_regions,
            make_pin_device()->capabilities().caps.max_regions);
}

TEST(FabricDevice, ProvidersAreListedOnceWithAllTheirAbilities) {
  MadeFabric fabric(
      {{"shm", FI_MR_VIRT_ADDR, 8, FI_MSG | FI_RMA | FI_ATOMIC},
       {"shm", FI_MR_VIRT_ADDR},
       {"verbs", kAllModes, 8, FI_MSG | FI_RMA, 0, FI_THREAD_SAFE, FI_PROGRESS_AUTO, FI_ORDER_RMA_WAW}});
  const FabricProviders found = fabric_providers(fabric.library());
  ASSERT_FALSE(found.error) << found.error.message;
  ASSERT_EQ(found.providers.size(), 2u);
  const FabricProvider& shm = found.providers[0];
  EXPECT_TRUE(shm.name == "shm" && shm.rma && shm.atomics && shm.virtual_addresses);
  EXPECT_FALSE(shm.pins || shm.automatic_progress || shm.ordered_puts || shm.provider_keys || shm.raw_keys ||
               shm.endpoint || shm.local);
  const FabricProvider& verbs = found.providers[1];
  EXPECT_TRUE(verbs.name == "verbs" && verbs.rma && verbs.pins && verbs.automatic_progress);
  EXPECT_TRUE(verbs.ordered_puts && verbs.provider_keys && verbs.raw_keys && verbs.endpoint && verbs.local);
  EXPECT_FALSE(verbs.atomics);
  fabric.refuse = [](const std::string&) { return -FI_ENOMEM; };
  EXPECT_EQ(fabric_providers(fabric.library()).error.code, ENOMEM);
}

TEST(FabricDevice, AnUnknownProviderIsToldFromOneOfOtherNodes) {
  MadeFabric fabric({{"tcp"}, {"udp;ofi_rxd"}});
  for (const char* known : {"tcp", "tcp;ofi_rxm", "udp;ofi_rxd", "verbs", "verbs;ofi_rxm", "cxi"})
    EXPECT_FALSE(check_fabric_provider(fabric.library(), known)) << known;
  const Error unknown = check_fabric_provider(fabric.library(), "nosuch");
  EXPECT_EQ(unknown.code, ENODEV);
  EXPECT_STREQ(unknown.message, "libfabric knows no provider 'nosuch'; here it knows: tcp, udp;ofi_rxd");
}

// ---- over the program's own domain

/// A run of Pinion beside a program that has opened a domain.
class ProgramsFabric : public ::testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("PINION");
    ASSERT_EQ(pinion_start("retention=on-demand"), 0) << pinion_last_error();
  }
  void TearDown() override {
    if (domain_ != nullptr) {
      EXPECT_EQ(pinion_domain_close(domain_), 0) << pinion_last_error();
    }
    EXPECT_EQ(pinion_stop(), 0);
    MadeFabric::free_info(info_);
  }
  int open(const MadeFabric::Provider& provider, fid_ep* endpoint) {
    MadeFabric::free_info(info_);
    info_ = fabric_.open_by_program(provider);
    return pinion_domain_open_fabric(&fabric_.domain, info_, endpoint, &domain_);
  }

  MadeFabric fabric_{{}};
  fi_info* info_ = nullptr;
  pinion_domain* domain_ = nullptr;
};

TEST_F(ProgramsFabric, ItsKeysAreOfTheDomainAndTheEndpoint) {
  ASSERT_EQ(open({"cxi", FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ENDPOINT}, &fabric_.endpoint), 0)
      << pinion_last_error();
  Memory memory(kMiB);
  pinion_lease lease = PINION_LEASE_INIT;
  char* const inside = reinterpret_cast<char*>(memory.range().begin) + 100;
  ASSERT_EQ(pinion_acquire(domain_, inside, 5000, PINION_ACCESS_REMOTE_WRITE, &lease), 0)
      << pinion_last_error();
  ASSERT_EQ(fabric_.live(), 1u);
  EXPECT_TRUE(fabric_.regions()[0].bound && fabric_.regions()[0].enabled);
  struct pinion_keys keys {};
  keys.size = sizeof keys;
  ASSERT_EQ(pinion_lease_keys(&lease, &keys), 0) << pinion_last_error();
  EXPECT_EQ(keys.remote_key, MadeFabric::kItsKey);
  EXPECT_EQ(keys.remote_base, memory.range().begin);
  EXPECT_EQ(keys.endpoint, &fabric_.endpoint);
  EXPECT_NE(keys.descriptor, nullptr);
  EXPECT_EQ(pinion_release(&lease), 0);
}

TEST_F(ProgramsFabric, WhatCannotServeIsNamed) {
  const auto refused = [&](int code, int expected, const char* part) {
    EXPECT_EQ(code, expected);
    EXPECT_EQ(domain_, nullptr);
    EXPECT_NE(std::strstr(pinion_last_error(), part), nullptr) << pinion_last_error();
  };
  refused(open({"cxi", FI_MR_ENDPOINT}, nullptr), EINVAL, "cxi binds registrations to an endpoint");
  refused(open({"tcp", 0, 8, FI_RMA, 0, FI_THREAD_DOMAIN}, nullptr), ENOTSUP, "FI_THREAD_DOMAIN");
  refused(pinion_domain_open_fabric(nullptr, info_, nullptr, &domain_), EINVAL, "the domain of libfabric");
  refused(pinion_domain_open_fabric(&fabric_.domain, nullptr, nullptr, &domain_), EINVAL, "the fi_info");
  fi_info empty{};
  refused(pinion_domain_open_fabric(&fabric_.domain, &empty, nullptr, &domain_), EINVAL, "lacks");
  EXPECT_EQ(pinion_domain_open_fabric(&fabric_.domain, info_, nullptr, nullptr), EINVAL);
}

TEST_F(ProgramsFabric, AForkedChildLeavesTheDomainAlone) {
  MadeFabric::free_info(info_);
  info_ = fabric_.open_by_program({"tcp"});
  FabricDeviceResult made = make_fabric_device(&fabric_.domain, info_, nullptr);
  ASSERT_FALSE(made.error) << made.error.message;
  Memory memory(kMiB);
  const Registration parents = made.device->register_range(memory.range(), Access::all, Actor::application);
  ASSERT_FALSE(parents.error) << parents.error.message;
  in_child([&] {
    made.device->abandon_after_fork();
    EXPECT_FALSE(made.device->deregister(parents.key, Actor::application));
    EXPECT_EQ(made.device->register_range(memory.range(), Access::all, Actor::application).error.code,
              ENODEV);
    EXPECT_EQ(fabric_.live(), 1u);
  });
  EXPECT_FALSE(made.device->deregister(parents.key, Actor::application));
}

}  // namespace
}  // namespace pinion
#endif
