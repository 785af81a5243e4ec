// PMIx's binary interface as Pinion declares it (src/transfer/bootstrap/pmix_abi.h) is the one of its header.
#include "transfer/bootstrap/pmix_abi.h"

#include <gtest/gtest.h>
#include <pmix.h>

#include <type_traits>

namespace pinion::pmix {
namespace {

static_assert(sizeof(Proc) == sizeof(pmix_proc_t) && offsetof(Proc, rank) == offsetof(pmix_proc_t, rank));
static_assert(sizeof(Value) == sizeof(pmix_value_t) && offsetof(Value, data) == offsetof(pmix_value_t, data));
static_assert(sizeof(ByteObject) == sizeof(pmix_byte_object_t) &&
              offsetof(ByteObject, size) == offsetof(pmix_byte_object_t, size));
static_assert(sizeof(Info) == sizeof(pmix_info_t) && offsetof(Info, flags) == offsetof(pmix_info_t, flags) &&
              offsetof(Info, value) == offsetof(pmix_info_t, value));
static_assert(std::is_same_v<Status, pmix_status_t> && std::is_same_v<Done, pmix_op_cbfunc_t>);

TEST(PmixAbi, ValuesAreThoseOfTheHeader) {
  EXPECT_EQ(kSuccess, PMIX_SUCCESS);
  EXPECT_EQ(kAlreadyDone, PMIX_OPERATION_SUCCEEDED);
  EXPECT_EQ(kAnyRank, PMIX_RANK_WILDCARD);
  EXPECT_EQ(kForAll, PMIX_GLOBAL);
  EXPECT_EQ(kBool, PMIX_BOOL);
  EXPECT_EQ(kInt, PMIX_INT);
  EXPECT_EQ(kUint32, PMIX_UINT32);
  EXPECT_EQ(kByteObject, PMIX_BYTE_OBJECT);
  EXPECT_STREQ(kJobSize, PMIX_JOB_SIZE);
  EXPECT_STREQ(kCollectData, PMIX_COLLECT_DATA);
  EXPECT_STREQ(kTimeout, PMIX_TIMEOUT);
}

}  // namespace
}  // namespace pinion::pmix
