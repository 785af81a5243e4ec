// Checks that the front's own description of the MPI ABIs (src/intercept/mpi/abi_*.h) agrees with the mpi.h
// of an installed MPI, or with the standard's mpi_abi.h. Compiled; for the standard's, run too.
#ifdef STANDARD_ABI
#include <mpi_abi.h>
#else
#include <mpi.h>
#endif

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <type_traits>

#if defined(STANDARD_ABI)
#include "intercept/mpi/abi_standard.h"
namespace abi = pinion::mpi::standard;
#elif defined(OPEN_MPI)
#include "intercept/mpi/abi_openmpi.h"
namespace abi = pinion::mpi::openmpi;
static_assert(offsetof(MPI_Status, _ucount) == offsetof(abi::Status, bytes_));
static_assert(offsetof(MPI_Status, _cancelled) == offsetof(abi::Status, cancelled_));
#else
#include "intercept/mpi/abi_mpich.h"
namespace abi = pinion::mpi::mpich;
static_assert(offsetof(MPI_Status, count_lo) == offsetof(abi::Status, count_low));
static_assert(offsetof(MPI_Status, count_hi_and_cancelled) ==
              offsetof(abi::Status, count_high_and_cancelled));
static_assert(MPI_COMM_WORLD == abi::Predefined::kCommWorld && MPI_COMM_NULL == abi::Predefined::kCommNull);
static_assert(MPI_INFO_NULL == abi::Predefined::kInfoNull && MPI_NO_OP == abi::Predefined::kNoOp);
static_assert(MPI_REQUEST_NULL == abi::Predefined::kRequestNull);
static_assert(MPI_DATATYPE_NULL == abi::Predefined::kDatatypeNull);
static_assert(MPI_SHORT_INT == abi::Predefined::kShortInt);
constexpr int kTheirTypes[] = {MPI_DOUBLE,
                               MPI_INT,
                               MPI_BYTE,
                               MPI_CHAR,
                               MPI_FLOAT,
                               MPI_LONG,
                               MPI_DOUBLE_PRECISION,
                               MPI_INTEGER,
                               MPI_REAL,
                               MPI_DOUBLE_COMPLEX,
                               MPI_C_DOUBLE_COMPLEX,
                               MPI_COMPLEX,
                               MPI_UNSIGNED_LONG,
                               MPI_UNSIGNED,
                               MPI_UNSIGNED_CHAR,
                               MPI_SIGNED_CHAR,
                               MPI_LONG_LONG_INT,
                               MPI_UNSIGNED_LONG_LONG,
                               MPI_SHORT,
                               MPI_UNSIGNED_SHORT,
                               MPI_INT64_T,
                               MPI_UINT64_T,
                               MPI_INT32_T,
                               MPI_UINT32_T,
                               MPI_INT8_T,
                               MPI_UINT8_T,
                               MPI_REAL8,
                               MPI_REAL4,
                               MPI_INTEGER8,
                               MPI_INTEGER4,
                               MPI_LOGICAL,
                               MPI_CHARACTER,
                               MPI_2INT,
                               MPI_AINT,
                               MPI_OFFSET,
                               MPI_COUNT,
                               MPI_C_BOOL,
                               MPI_C_FLOAT_COMPLEX,
                               MPI_PACKED};
static_assert(std::equal(std::begin(kTheirTypes), std::end(kTheirTypes), std::begin(abi::Predefined::kTypes),
                         std::end(abi::Predefined::kTypes)));
#endif

template <class Ours, class Theirs>
constexpr bool kAlike =
    sizeof(Ours) == sizeof(Theirs) && std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>;

static_assert(kAlike<abi::Comm, MPI_Comm> && kAlike<abi::Datatype, MPI_Datatype>);
static_assert(kAlike<abi::Errhandler, MPI_Errhandler> && kAlike<abi::File, MPI_File>);
static_assert(kAlike<abi::Group, MPI_Group> && kAlike<abi::Info, MPI_Info>);
static_assert(kAlike<abi::Message, MPI_Message> && kAlike<abi::Op, MPI_Op>);
static_assert(kAlike<abi::Request, MPI_Request> && kAlike<abi::Win, MPI_Win>);
static_assert(kAlike<abi::Aint, MPI_Aint> && kAlike<abi::Count, MPI_Count> &&
              kAlike<abi::Offset, MPI_Offset>);
#if MPI_VERSION >= 4
static_assert(kAlike<abi::Session, MPI_Session>);
#endif
static_assert(sizeof(abi::Status) == sizeof(MPI_Status));
static_assert(offsetof(MPI_Status, MPI_SOURCE) == offsetof(abi::Status, source));
static_assert(offsetof(MPI_Status, MPI_TAG) == offsetof(abi::Status, tag));
static_assert(offsetof(MPI_Status, MPI_ERROR) == offsetof(abi::Status, error));
static_assert(MPI_PROC_NULL == abi::kProcNull && MPI_ROOT == abi::kRoot && MPI_UNDEFINED == abi::kUndefined);
static_assert(MPI_COMM_TYPE_SHARED == abi::kTypeShared && MPI_SUCCESS == 0);
using Combiners = abi::Combiners;
static_assert(MPI_COMBINER_DUP == Combiners::dup && MPI_COMBINER_CONTIGUOUS == Combiners::contiguous &&
              MPI_COMBINER_VECTOR == Combiners::vector && MPI_COMBINER_HVECTOR == Combiners::hvector &&
              MPI_COMBINER_INDEXED == Combiners::indexed && MPI_COMBINER_HINDEXED == Combiners::hindexed &&
              MPI_COMBINER_INDEXED_BLOCK == Combiners::indexed_block &&
              MPI_COMBINER_HINDEXED_BLOCK == Combiners::hindexed_block &&
              MPI_COMBINER_STRUCT == Combiners::structure && MPI_COMBINER_SUBARRAY == Combiners::subarray &&
              MPI_COMBINER_DARRAY == Combiners::darray && MPI_COMBINER_RESIZED == Combiners::resized);
static_assert(MPI_ORDER_C == abi::kOrderC && MPI_DISTRIBUTE_BLOCK == abi::kDistributeBlock &&
              MPI_DISTRIBUTE_CYCLIC == abi::kDistributeCyclic &&
              MPI_DISTRIBUTE_DFLT_DARG == abi::kDistributeDefault);
static_assert(MPI_GRAPH == abi::kGraph && MPI_CART == abi::kCart && MPI_DIST_GRAPH == abi::kDistGraph);

// Checks those that are pointers; no constant expressions.
bool pointers_agree() {
  return MPI_IN_PLACE == abi::kInPlace && static_cast<void*>(MPI_STATUS_IGNORE) == abi::kStatusIgnore &&
         MPI_BOTTOM == nullptr;
}

#ifdef STANDARD_ABI
static bool is(const void* theirs, std::uintptr_t ours) {
  return reinterpret_cast<std::uintptr_t>(theirs) == ours;
}

int main() {
  using Ours = abi::Predefined;
  const MPI_Datatype theirs[] = {MPI_DOUBLE,
                                 MPI_INT,
                                 MPI_BYTE,
                                 MPI_CHAR,
                                 MPI_FLOAT,
                                 MPI_LONG,
                                 MPI_DOUBLE_PRECISION,
                                 MPI_INTEGER,
                                 MPI_REAL,
                                 MPI_DOUBLE_COMPLEX,
                                 MPI_C_DOUBLE_COMPLEX,
                                 MPI_COMPLEX,
                                 MPI_UNSIGNED_LONG,
                                 MPI_UNSIGNED,
                                 MPI_UNSIGNED_CHAR,
                                 MPI_SIGNED_CHAR,
                                 MPI_LONG_LONG_INT,
                                 MPI_UNSIGNED_LONG_LONG,
                                 MPI_SHORT,
                                 MPI_UNSIGNED_SHORT,
                                 MPI_INT64_T,
                                 MPI_UINT64_T,
                                 MPI_INT32_T,
                                 MPI_UINT32_T,
                                 MPI_INT16_T,
                                 MPI_UINT16_T,
                                 MPI_INT8_T,
                                 MPI_UINT8_T,
                                 MPI_REAL8,
                                 MPI_REAL4,
                                 MPI_LOGICAL,
                                 MPI_CHARACTER,
                                 MPI_DOUBLE_INT,
                                 MPI_2INT,
                                 MPI_AINT,
                                 MPI_OFFSET,
                                 MPI_COUNT,
                                 MPI_C_BOOL,
                                 MPI_C_FLOAT_COMPLEX,
                                 MPI_PACKED,
                                 MPI_LONG_DOUBLE,
                                 MPI_WCHAR};
  const bool handles = is(MPI_COMM_WORLD, Ours::kCommWorld) && is(MPI_COMM_NULL, Ours::kCommNull) &&
                       is(MPI_INFO_NULL, Ours::kInfoNull) && is(MPI_NO_OP, Ours::kNoOp) &&
                       is(MPI_REQUEST_NULL, Ours::kRequestNull) && is(MPI_WIN_NULL, Ours::kWinNull) &&
                       is(MPI_DATATYPE_NULL, Ours::kDatatypeNull) && is(MPI_BYTE, Ours::kByte) &&
                       is(MPI_SHORT_INT, Ours::kShortInt);
  const bool types =
      std::equal(std::begin(theirs), std::end(theirs), std::begin(Ours::kTypes), std::end(Ours::kTypes), is);
  return handles && types && pointers_agree() ? 0 : 1;
}
#endif
