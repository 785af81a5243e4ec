// The MPICH ABI as a program's binary sees it: libmpi.so.12 of MPICH (Debian: libmpich.so.12), Intel MPI,
// Cray MPICH and MVAPICH. Handles are integers. That this agrees with an installed mpi.h is tested
// (tests/intercept/mpi/abi_check.cpp). Values and plain types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::mpi::mpich {

using Comm = int;
using Datatype = int;
using Errhandler = int;
using File = struct FileObject*;
using Group = int;
using Info = int;
using Message = int;
using Op = int;
using Request = int;
using Session = int;
using Win = int;
using Aint = std::ptrdiff_t;
using Count = long long;
using Offset = long long;

struct Status {
  std::uint32_t count_low, count_high_and_cancelled;
  int source, tag, error;
  std::uint64_t bytes() const { return std::uint64_t{count_high_and_cancelled >> 1} << 32 | count_low; }
  bool cancelled() const { return count_high_and_cancelled & 1; }
};

inline void* const kInPlace = reinterpret_cast<void*>(-1);
inline Status* const kStatusIgnore = reinterpret_cast<Status*>(1);
constexpr int kProcNull = -1;
constexpr int kRoot = -3;
constexpr int kUndefined = -32766;
constexpr int kTypeShared = 1;
constexpr int kGraph = 1, kCart = 2, kDistGraph = 3;

/// The ways to make a datatype.
struct Combiners {
  static constexpr int dup = 2, contiguous = 3, vector = 4, hvector = 6, indexed = 7, hindexed = 9,
                       indexed_block = 10, structure = 12, subarray = 13, darray = 14, resized = 18,
                       hindexed_block = 19;
};
constexpr int kOrderC = 56;
constexpr int kDistributeBlock = 121, kDistributeCyclic = 122, kDistributeDefault = -49767;

struct Predefined {
  static constexpr int kCommWorld = 0x44000000;
  static constexpr int kCommNull = 0x04000000;
  static constexpr int kInfoNull = 0x1c000000;
  static constexpr int kRequestNull = 0x2c000000;
  static constexpr int kDatatypeNull = 0x0c000000;
  static constexpr int kWinNull = 0x20000000;
  static constexpr int kShortInt = static_cast<int>(0x8c000003);
  static constexpr int kNoOp = 0x5800000e;
  /// The types that programs send most; the last byte is the type's number.
  static constexpr int kTypes[] = {
      0x4c00080b, 0x4c000405, 0x4c00010d, 0x4c000101, 0x4c00040a, 0x4c000807, 0x4c00081f, 0x4c00041b,
      0x4c00041c, 0x4c001022, 0x4c001041, 0x4c00081e, 0x4c000808, 0x4c000406, 0x4c000102, 0x4c000118,
      0x4c000809, 0x4c000819, 0x4c000203, 0x4c000204, 0x4c00083a, 0x4c00083e, 0x4c000439, 0x4c00043d,
      0x4c000137, 0x4c00013b, 0x4c000829, 0x4c000427, 0x4c000831, 0x4c000430, 0x4c00041d, 0x4c00011a,
      0x4c000816, 0x4c000843, 0x4c000844, 0x4c000845, 0x4c00013f, 0x4c000840, 0x4c00010f};
  static constexpr int kTypeShift = 0;
};
template <class Handle, class Find>
Handle predefined(int value, Find) {
  return value;
}

}  // namespace pinion::mpi::mpich
