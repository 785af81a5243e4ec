// Device verbs-odp over a library that is made up: the devices available to tests lack on-demand paging. And
// a library's possible refusals.
#include "device/verbs/verbs_library.h"

#ifdef PINION_HAS_VERBS
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "device/verbs/verbs.h"

namespace pinion {
namespace {

struct Advised {
  Range range;
  std::uint32_t lkey;
  ibv_advise_mr_advice advice;
};

/// The calls to the library, and its properties.
struct Made {
  bool pages_on_demand = true;
  verbs_context context{};
  ibv_device device{};
  ibv_device* list[2] = {&device, nullptr};
  ibv_pd pd{};
  ibv_mr region{};
  int access = 0;
  int refuses = 0;  ///< errno
  std::vector<Advised> advised;
};
Made made;

int query_device_ex(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attributes,
                    std::size_t) {
  if (!made.pages_on_demand) return 0;
  attributes->odp_caps.general_caps = IBV_ODP_SUPPORT;
  attributes->odp_caps.per_transport_caps.rc_odp_caps =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ;
  return 0;
}
int advise_mr(ibv_pd*, ibv_advise_mr_advice advice, std::uint32_t, ibv_sge* elements, std::uint32_t count) {
  for (std::uint32_t i = 0; i < count; ++i)
    made.advised.push_back(
        {{elements[i].addr, elements[i].addr + elements[i].length}, elements[i].lkey, advice});
  return 0;
}

VerbsLibrary library() {
  VerbsLibrary verbs;
  verbs.get_device_list = [](int* count) {
    *count = 1;
    return made.list;
  };
  verbs.free_device_list = [](ibv_device**) {};
  verbs.get_device_name = [](ibv_device*) { return "made0"; };
  verbs.open_device = [](ibv_device*) { return &made.context.context; };
  verbs.close_device = [](ibv_context*) { return 0; };
  verbs.query_device = [](ibv_context*, ibv_device_attr* attributes) {
    attributes->phys_port_cnt = 1;
    attributes->max_mr = 100;
    return 0;
  };
  verbs.query_port = [](ibv_context*, std::uint8_t, _compat_ibv_port_attr* attributes) {
    reinterpret_cast<ibv_port_attr*>(attributes)->state = IBV_PORT_ACTIVE;
    return 0;
  };
  verbs.alloc_pd = [](ibv_context*) { return &made.pd; };
  verbs.dealloc_pd = [](ibv_pd*) { return 0; };
  // The parentheses: verbs.h makes a macro of the name.
  (verbs.reg_mr) = [](ibv_pd*, void*, std::size_t, int access) {
    made.access = access;
    errno = made.refuses;
    return made.refuses ? nullptr : &made.region;
  };
  verbs.dereg_mr = [](ibv_mr*) { return 0; };
  return verbs;
}

class OnDemandPaging : public ::testing::Test {
 protected:
  OnDemandPaging() {
    made = {};
    made.list[0] = &made.device;
    made.context.sz = sizeof made.context;
    made.context.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    made.context.context.device = &made.device;
    made.context.query_device_ex = query_device_ex;
    made.context.advise_mr = advise_mr;
    made.pd.context = &made.context.context;
    made.region.lkey = 77;
  }
  std::unique_ptr<Device> open(Paging paging) {
    VerbsDeviceResult result = make_verbs_device(verbs_, "", paging);
    EXPECT_FALSE(result.error) << result.error.message;
    return std::move(result.device);
  }
  /// Never mapped: nothing of it may be touched.
  const Range nowhere_{page_size(), 3 * page_size()};
  const VerbsLibrary verbs_ = library();
};

TEST_F(OnDemandPaging, TheDeviceIsToldOfWhatIsNeededNext) {
  const auto device = open(Paging::on_demand);
  EXPECT_STREQ(device->name(), "verbs-odp");
  const Registration ahead = device->register_range(nowhere_, Access::all, Actor::helper);
  ASSERT_FALSE(ahead.error) << ahead.error.message;
  EXPECT_TRUE(made.access & IBV_ACCESS_ON_DEMAND);
  ASSERT_EQ(made.advised.size(), 1u);
  EXPECT_EQ(made.advised[0].range, nowhere_);
  EXPECT_EQ(made.advised[0].lkey, 77u);
  EXPECT_EQ(made.advised[0].advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
  EXPECT_FALSE(device->deregister(ahead.key, Actor::helper));
  // A thread that waits for a registration must not wait for pages, too.
  const Registration now = device->register_range(nowhere_, Access::read, Actor::application);
  ASSERT_FALSE(now.error);
  EXPECT_EQ(made.advised.size(), 1u);
  EXPECT_FALSE(device->deregister(now.key, Actor::application));
}

TEST_F(OnDemandPaging, WhatIsLongIsToldInParts) {
  const auto device = open(Paging::on_demand);
  const Range large{page_size(), page_size() + (std::size_t{5} << 30)};
  const Registration ahead = device->register_range(large, Access::read, Actor::helper);
  ASSERT_FALSE(ahead.error);
  Address next = large.begin;
  for (const Advised& part : made.advised) {
    EXPECT_EQ(part.range.begin, next);
    EXPECT_EQ(part.advice, IBV_ADVISE_MR_ADVICE_PREFETCH);
    next = part.range.end;
  }
  EXPECT_EQ(next, large.end);
  EXPECT_FALSE(device->deregister(ahead.key, Actor::helper));
}

TEST_F(OnDemandPaging, WithoutAdviceItWorksAsWell) {
  made.context.advise_mr = nullptr;
  const auto device = open(Paging::on_demand);
  const Registration ahead = device->register_range(nowhere_, Access::all, Actor::helper);
  EXPECT_FALSE(ahead.error);
  EXPECT_FALSE(device->deregister(ahead.key, Actor::helper));
}

TEST_F(OnDemandPaging, ADeviceWithoutItIsRefused) {
  made.pages_on_demand = false;
  EXPECT_EQ(make_verbs_device(verbs_, "", Paging::on_demand).error.code, ENOTSUP);
  made.context.query_device_ex = nullptr;  // as old providers are
  const VerbsDeviceResult refused = make_verbs_device(verbs_, "", Paging::on_demand);
  EXPECT_EQ(refused.error.code, ENOTSUP);
  EXPECT_NE(std::strstr(refused.error.message, "made0 has no on-demand paging"), nullptr)
      << refused.error.message;
}

TEST_F(OnDemandPaging, IsNotThereUnlessAskedFor) {
  const auto device = open(Paging::pinned);
  EXPECT_STREQ(device->name(), "verbs");
  EXPECT_EQ(device->register_range(nowhere_, Access::all, Actor::helper).error.code, EFAULT);
  EXPECT_TRUE(made.advised.empty());
}

// Soft-RoCE returns ENOMEM, mlx5 that or EAGAIN, others another code.
TEST_F(OnDemandPaging, ADeviceThatIsFullIsNamedWhateverItSays) {
  const auto device = open(Paging::on_demand);
  for (const int code : {ENOMEM, EAGAIN, EBUSY, EINVAL, ENOSPC}) {
    made.refuses = code;
    const Error error = device->register_range(nowhere_, Access::all, Actor::application).error;
    EXPECT_EQ(error.code, ENOSPC) << std::strerror(code);
    EXPECT_NE(std::strstr(error.message, "made0 has no room for a region of 8K: "), nullptr) << error.message;
    EXPECT_NE(std::strstr(error.message, "may have 100, "), nullptr) << error.message;
    EXPECT_NE(std::strstr(error.message, "(--limit-regions, --limit)"), nullptr) << error.message;
  }
}

}  // namespace
}  // namespace pinion
#endif
