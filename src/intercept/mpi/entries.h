// The names that the preload shows, MPI_X and PMPI_X (and MPIX_X where Open MPI has it), in one order
// everywhere. The program calls a jump through pinion_mpi_entries, made by generate.py from
// calls.table: at first all lead to the recognition of the MPI (recognise.cpp), then each to the wrapper for
// its ABI. Registers and stack stay as they were, so the wrapper's caller is the program.
#pragma once

#include <cstddef>

namespace pinion::mpi {

/// The target of each name. Written once, when the MPI is recognised.
extern "C" [[gnu::visibility("hidden")]] void* pinion_mpi_entries[];
/// The jumps, as data.
extern "C" [[gnu::visibility("hidden")]] void* const pinion_mpi_names[];
/// The meaning of each name without Pinion: of the next library that defines it. Written before the entries.
extern void* g_next[];
extern const char* const kEntryNames[];
extern const std::size_t kEntryCount;

template <int entry, class Function>
Function* next_of() {
  return reinterpret_cast<Function*>(g_next[entry]);
}

/// The wrappers for one ABI.
struct Front {
  void* const* wrappers;  ///< kEntryCount of them
  void (*attach)(void* library);
};
namespace openmpi {
extern const Front kFront;
}
namespace mpich {
extern const Front kFront;
}
namespace standard {
extern const Front kFront;
}

}  // namespace pinion::mpi
