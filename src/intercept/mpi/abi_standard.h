// The ABI of the MPI standard (MPI 5.0, chapter 20) as a program's binary sees it: libmpi_abi.so.1 of any
// MPI. Handles are pointers, whose predefined values are small numbers. That this agrees with an installed
// mpi_abi.h is tested (tests/intercept/mpi/abi_check.cpp). Values and plain types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::mpi::standard {

using Comm = struct CommObject*;
using Datatype = struct DatatypeObject*;
using Errhandler = struct ErrhandlerObject*;
using File = struct FileObject*;
using Group = struct GroupObject*;
using Info = struct InfoObject*;
using Message = struct MessageObject*;
using Op = struct OpObject*;
using Request = struct RequestObject*;
using Session = struct SessionObject*;
using Win = struct WinObject*;
using Aint = std::intptr_t;
using Count = std::int64_t;
using Offset = std::int64_t;

/// The standard leaves the places of length and cancellation to each library, so the library is asked
/// (status_standard.cpp).
struct Status {
  int source, tag, error, internal[5];
  std::uint64_t bytes() const;
  bool cancelled() const;
};

inline void* const kInPlace = reinterpret_cast<void*>(1);
inline Status* const kStatusIgnore = nullptr;
constexpr int kProcNull = -3;
constexpr int kRoot = -4;
constexpr int kUndefined = -32766;
constexpr int kTypeShared = 221;
constexpr int kCart = 211, kGraph = 212, kDistGraph = 213;

/// The ways to make a datatype.
struct Combiners {
  static constexpr int dup = 102, contiguous = 103, vector = 104, hvector = 105, indexed = 106,
                       hindexed = 107, indexed_block = 108, hindexed_block = 109, structure = 110,
                       subarray = 111, darray = 112, resized = 116;
};
constexpr int kOrderC = 12;
constexpr int kDistributeBlock = 17, kDistributeCyclic = 18, kDistributeDefault = 19;

struct Predefined {
  static constexpr std::uintptr_t kCommWorld = 0x101;
  static constexpr std::uintptr_t kCommNull = 0x100;
  static constexpr std::uintptr_t kInfoNull = 0x130;
  static constexpr std::uintptr_t kRequestNull = 0x180;
  static constexpr std::uintptr_t kDatatypeNull = 0x200;
  static constexpr std::uintptr_t kWinNull = 0x110;
  static constexpr std::uintptr_t kByte = 0x247;
  static constexpr std::uintptr_t kShortInt = 0x22c;
  static constexpr std::uintptr_t kNoOp = 0x3d;
  /// The types that programs send most; those of Fortran with a given size fall on places of C's.
  static constexpr std::uintptr_t kTypes[] = {
      0x214, 0x209, 0x247, 0x243, 0x210, 0x20a, 0x21c, 0x219, 0x21a, 0x21d, 0x216, 0x21b, 0x20e, 0x20d,
      0x245, 0x244, 0x20b, 0x20f, 0x208, 0x20c, 0x258, 0x259, 0x250, 0x251, 0x248, 0x249, 0x240, 0x241,
      0x2da, 0x2d2, 0x218, 0x21e, 0x229, 0x22b, 0x201, 0x203, 0x202, 0x238, 0x212, 0x207, 0x220, 0x23c};
  static constexpr int kTypeShift = 0;
};
template <class Handle, class Find>
Handle predefined(std::uintptr_t value, Find) {
  return reinterpret_cast<Handle>(value);
}

}  // namespace pinion::mpi::standard
