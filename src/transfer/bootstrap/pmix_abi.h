// The part of PMIx's binary interface that Pinion calls: libpmix.so.2 is loaded when used, and its headers
// are not needed to build. tests/transfer/pmix_abi_test.cpp compares it with pmix.h. No state.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::pmix {

using Status = int;
constexpr Status kSuccess = 0;
constexpr Status kAlreadyDone = -157;  ///< PMIX_OPERATION_SUCCEEDED: no callback follows

constexpr std::uint32_t kAnyRank = 0xfffffffe;  ///< PMIX_RANK_WILDCARD
constexpr std::uint8_t kForAll = 3;             ///< PMIX_GLOBAL

constexpr std::uint16_t kBool = 1, kInt = 6, kUint32 = 14, kByteObject = 27;

constexpr const char* kJobSize = "pmix.job.size";
constexpr const char* kCollectData = "pmix.collect";
constexpr const char* kTimeout = "pmix.timeout";

struct Proc {
  char space[256];
  std::uint32_t rank;
};

struct ByteObject {
  char* bytes;
  std::size_t size;
};

struct Value {
  std::uint16_t type;
  union {
    bool flag;
    int integer;
    std::uint32_t uint32;
    ByteObject bytes;
    struct {
      void* words[3];
    } largest;
  } data;
};

struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

using Done = void (*)(Status status, void* context);

}  // namespace pinion::pmix
