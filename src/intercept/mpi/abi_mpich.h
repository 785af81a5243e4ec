// The MPICH ABI as a program's binary sees it: libmpi.so.12 of MPICH (Debian: libmpich.so.12), Intel MPI,
// Cray MPICH and MVAPICH. Handles are integers. That this agrees with an installed mpi.h is tested
// (tests/mpi/abi_check.cpp). Values and plain types only.
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

struct Predefined {
  static constexpr int kCommWorld = 0x44000000;
  static constexpr int kCommNull = 0x04000000;
  static constexpr int kInfoNull = 0x1c000000;
  static constexpr int kRequestNull = 0x2c000000;
  static constexpr int kDatatypeNull = 0x0c000000;
  static constexpr int kNoOp = 0x5800000e;
};
template <class Handle, class Find>
Handle predefined(int value, Find) {
  return value;
}

}  // namespace pinion::mpi::mpich
