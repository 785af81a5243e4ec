/*
 * Derived datatypes of MPI as gather lists: pinion_mpi_pieces() gives the pieces that MPI_Pack would copy, in
 * its order, for pinion_gather_plan(). Compiled into the program, for the MPI whose mpi.h it finds; calls
 * only MPI's functions about datatypes. Any thread that may call MPI; the type stays the caller's.
 */
#ifndef PINION_MPI_GATHER_H
#define PINION_MPI_GATHER_H

#include <mpi.h>

#include "pinion/pinion.h"

/* MPI 4 counts in MPI_Count: only so do types made with large counts answer. */
static inline int pinion_mpi_get_envelope(MPI_Datatype type, MPI_Count* ints, MPI_Count* addresses,
                                          MPI_Count* counts, MPI_Count* types, int* combiner) {
#if MPI_VERSION >= 4
  return MPI_Type_get_envelope_c(type, ints, addresses, counts, types, combiner);
#else
  int int_count = 0, address_count = 0, type_count = 0;
  const int result = MPI_Type_get_envelope(type, &int_count, &address_count, &type_count, combiner);
  *ints = int_count;
  *addresses = address_count;
  *counts = 0;
  *types = type_count;
  return result;
#endif
}

static inline int pinion_mpi_get_contents(MPI_Datatype type, MPI_Count int_count, MPI_Count address_count,
                                          MPI_Count count_count, MPI_Count type_count, int* ints,
                                          MPI_Aint* addresses, MPI_Count* counts, MPI_Datatype* types) {
#if MPI_VERSION >= 4
  return MPI_Type_get_contents_c(type, int_count, address_count, count_count, type_count, ints, addresses,
                                 counts, types);
#else
  (void)count_count;
  (void)counts;
  return MPI_Type_get_contents(type, (int)int_count, (int)address_count, (int)type_count, ints, addresses,
                               types);
#endif
}

#include "pinion/mpi_datatype.h"

/*
 * The pieces of `count` elements of `type` at `buffer`, as pinion_gather_plan() takes them. `*piece_count`:
 * in, the room in `pieces`; out, their number. ENOSPC: the room is short; ENOTSUP: a type that came later
 * than MPI 4.0; EINVAL: MPI refused the type; ENOMEM. Allocates and calls MPI: ordinary code.
 */
static inline int pinion_mpi_pieces(const void* buffer, int count, MPI_Datatype type,
                                    struct pinion_range* pieces, size_t* piece_count) {
  struct pinion_mpi_bounds bounds = PINION_MPI_UNBOUNDED;
  struct pinion_mpi_list one, all;
  memset(&all, 0, sizeof all);
  int error = pinion_mpi_flatten(type, &bounds, &one);
  if (error == 0) error = pinion_mpi_append_block(&all, &bounds, &one, 0, count);
  if (error == 0) {
    if (all.count > *piece_count) error = ENOSPC;
    for (size_t i = 0; i < all.count && error == 0; ++i) {
      pieces[i].address = (const char*)buffer + all.pieces[i].offset;
      pieces[i].bytes = (size_t)all.pieces[i].bytes;
    }
    *piece_count = all.count;
  }
  free(one.pieces);
  free(all.pieces);
  return error;
}

#endif
