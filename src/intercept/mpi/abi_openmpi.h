// Open MPI as a program's binary sees it: libmpi.so.40 (Open MPI 3 to 5) and its predecessors back to 1.7.
// Handles are pointers; predefined ones are the addresses of data symbols of the library (library.h finds
// them). That this agrees with an installed mpi.h is tested (tests/intercept/mpi/abi_check.cpp). Values and
// plain types only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pinion::mpi::openmpi {

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
using Aint = std::ptrdiff_t;
using Count = long long;
using Offset = long long;

struct Status {
  int source, tag, error, cancelled_;
  std::size_t bytes_;
  std::uint64_t bytes() const { return bytes_; }
  bool cancelled() const { return cancelled_ != 0; }
};

inline void* const kInPlace = reinterpret_cast<void*>(1);
inline Status* const kStatusIgnore = nullptr;
constexpr int kProcNull = -2;
constexpr int kRoot = -4;
constexpr int kUndefined = -32766;
constexpr int kTypeShared = 0;
constexpr int kCart = 1, kGraph = 2, kDistGraph = 3;

/// The ways to make a datatype.
struct Combiners {
  static constexpr int dup = 1, contiguous = 2, vector = 3, hvector = 5, indexed = 6, hindexed = 8,
                       indexed_block = 9, structure = 11, subarray = 12, darray = 13, resized = 17,
                       hindexed_block = 18;
};
constexpr int kOrderC = 0;
constexpr int kDistributeBlock = 0, kDistributeCyclic = 1, kDistributeDefault = -1;

/// One that only Open MPI has.
constexpr const char* kDistinctiveSymbol = "ompi_mpi_comm_world";

struct Predefined {
  static constexpr const char* kCommWorld = "ompi_mpi_comm_world";
  static constexpr const char* kCommNull = "ompi_mpi_comm_null";
  static constexpr const char* kInfoNull = "ompi_mpi_info_null";
  static constexpr const char* kRequestNull = "ompi_request_null";
  static constexpr const char* kDatatypeNull = "ompi_mpi_datatype_null";
  static constexpr const char* kWinNull = "ompi_mpi_win_null";
  static constexpr const char* kShortInt = "ompi_mpi_short_int";
  static constexpr const char* kNoOp = "ompi_mpi_op_no_op";
  /// The types that programs send most, each an object of 512 bytes.
  static constexpr const char* kTypes[] = {"ompi_mpi_double",
                                           "ompi_mpi_int",
                                           "ompi_mpi_byte",
                                           "ompi_mpi_char",
                                           "ompi_mpi_float",
                                           "ompi_mpi_long",
                                           "ompi_mpi_dblprec",
                                           "ompi_mpi_integer",
                                           "ompi_mpi_real",
                                           "ompi_mpi_dblcplex",
                                           "ompi_mpi_c_double_complex",
                                           "ompi_mpi_cplex",
                                           "ompi_mpi_unsigned_long",
                                           "ompi_mpi_unsigned",
                                           "ompi_mpi_unsigned_char",
                                           "ompi_mpi_signed_char",
                                           "ompi_mpi_long_long_int",
                                           "ompi_mpi_unsigned_long_long",
                                           "ompi_mpi_short",
                                           "ompi_mpi_unsigned_short",
                                           "ompi_mpi_int64_t",
                                           "ompi_mpi_uint64_t",
                                           "ompi_mpi_int32_t",
                                           "ompi_mpi_uint32_t",
                                           "ompi_mpi_int8_t",
                                           "ompi_mpi_uint8_t",
                                           "ompi_mpi_real8",
                                           "ompi_mpi_real4",
                                           "ompi_mpi_integer8",
                                           "ompi_mpi_integer4",
                                           "ompi_mpi_logical",
                                           "ompi_mpi_character",
                                           "ompi_mpi_double_int",
                                           "ompi_mpi_2int",
                                           "ompi_mpi_aint",
                                           "ompi_mpi_offset",
                                           "ompi_mpi_count",
                                           "ompi_mpi_c_bool",
                                           "ompi_mpi_c_float_complex",
                                           "ompi_mpi_packed"};
  static constexpr int kTypeShift = 9;
};
template <class Handle, class Find>
Handle predefined(const char* symbol, Find find) {
  return static_cast<Handle>(find(symbol));
}

}  // namespace pinion::mpi::openmpi
