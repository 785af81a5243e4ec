// Open MPI as a program's binary sees it: libmpi.so.40 (Open MPI 3 to 5) and its predecessors back to 1.7.
// Handles are pointers; predefined ones are the addresses of data symbols of the library (library.h finds
// them). That this agrees with an installed mpi.h is tested (tests/mpi/abi_check.cpp). Values and plain types
// only.
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

/// One that Open MPI has and no other.
constexpr const char* kDistinctiveSymbol = "ompi_mpi_comm_world";

struct Predefined {
  static constexpr const char* kCommWorld = "ompi_mpi_comm_world";
  static constexpr const char* kCommNull = "ompi_mpi_comm_null";
  static constexpr const char* kInfoNull = "ompi_mpi_info_null";
  static constexpr const char* kRequestNull = "ompi_request_null";
  static constexpr const char* kDatatypeNull = "ompi_mpi_datatype_null";
  static constexpr const char* kNoOp = "ompi_mpi_op_no_op";
};
template <class Handle, class Find>
Handle predefined(const char* symbol, Find find) {
  return static_cast<Handle>(find(symbol));
}

}  // namespace pinion::mpi::openmpi
