// The ABI that a source of the front is compiled for: the ABI-dependent ones are compiled once for each, with
// PINION_MPI_ABI naming its namespace (openmpi, mpich, standard). All are frozen, so every build has them
// all, independent of mpi.h.
#pragma once

#if !defined(PINION_MPI_ABI)
#error "this source is compiled once for each MPI ABI, with PINION_MPI_ABI defined"
#endif

#include <type_traits>

#include "intercept/mpi/abi_mpich.h"
#include "intercept/mpi/abi_openmpi.h"
#include "intercept/mpi/abi_standard.h"

namespace pinion::mpi::PINION_MPI_ABI {

constexpr int kSuccess = 0;

/// A handle as the tables that all ABIs share know it.
template <class Handle>
std::uintptr_t key_of(Handle handle) {
  if constexpr (std::is_pointer_v<Handle>) {
    return reinterpret_cast<std::uintptr_t>(handle);
  } else {
    return static_cast<std::uintptr_t>(static_cast<unsigned>(handle));
  }
}

}  // namespace pinion::mpi::PINION_MPI_ABI
