/*
 * Derived datatypes of MPI as gather lists: pinion_mpi_pieces() gives the pieces that MPI_Pack would copy, in
 * its order, for pinion_gather_plan(). Compiled into the program, for the MPI whose mpi.h it finds; calls
 * only MPI's functions about datatypes. Any thread that may call MPI; the type stays the caller's.
 */
#ifndef PINION_MPI_GATHER_H
#define PINION_MPI_GATHER_H

#include <errno.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "pinion/pinion.h"

struct pinion_mpi_piece {
  MPI_Aint offset, bytes;
};

/* Pieces of one element of a type, at offsets from its address; neighbours in the list are joined. */
struct pinion_mpi_list {
  struct pinion_mpi_piece* pieces;
  size_t count, room;
  MPI_Aint extent; /* from one element to the next */
};

static inline int pinion_mpi_append(struct pinion_mpi_list* list, MPI_Aint offset, MPI_Aint bytes) {
  if (bytes == 0) return 0;
  if (list->count > 0) {
    struct pinion_mpi_piece* const last = &list->pieces[list->count - 1];
    if (last->offset + last->bytes == offset) {
      last->bytes += bytes;
      return 0;
    }
  }
  if (list->count == list->room) {
    const size_t room = list->room == 0 ? 8 : 2 * list->room;
    void* const grown = realloc(list->pieces, room * sizeof *list->pieces);
    if (grown == NULL) return ENOMEM;
    list->pieces = (struct pinion_mpi_piece*)grown;
    list->room = room;
  }
  list->pieces[list->count].offset = offset;
  list->pieces[list->count++].bytes = bytes;
  return 0;
}

/* `count` elements of `of`, the first at `offset`. */
static inline int pinion_mpi_append_block(struct pinion_mpi_list* list, const struct pinion_mpi_list* of,
                                          MPI_Aint offset, MPI_Aint count) {
  if (count > 0 && of->count == 1 && of->pieces[0].bytes == of->extent)
    return pinion_mpi_append(list, offset + of->pieces[0].offset, count * of->extent);
  for (MPI_Aint i = 0; i < count; ++i, offset += of->extent)
    for (size_t piece = 0; piece < of->count; ++piece) {
      const int error = pinion_mpi_append(list, offset + of->pieces[piece].offset, of->pieces[piece].bytes);
      if (error != 0) return error;
    }
  return 0;
}

/* The elements of a subarray in one dimension and all below it; `dimension` counts from the slowest one. */
static inline int pinion_mpi_append_subarray(struct pinion_mpi_list* list, const struct pinion_mpi_list* of,
                                             const int* description, int dimension, MPI_Aint offset) {
  const int dimensions = description[0], *const sizes = description + 1, *const subsizes = sizes + dimensions,
            *const starts = subsizes + dimensions;
  const int is_c = starts[dimensions] == MPI_ORDER_C;
  const int at = is_c ? dimension : dimensions - 1 - dimension;
  MPI_Aint step = of->extent;
  for (int faster = dimension + 1; faster < dimensions; ++faster)
    step *= sizes[is_c ? faster : dimensions - 1 - faster];
  offset += starts[at] * step;
  if (dimension == dimensions - 1) return pinion_mpi_append_block(list, of, offset, subsizes[at]);
  for (int i = 0; i < subsizes[at]; ++i) {
    const int error = pinion_mpi_append_subarray(list, of, description, dimension + 1, offset + i * step);
    if (error != 0) return error;
  }
  return 0;
}

/* A predefined type: one piece, but for MPI_SHORT_INT, whose parts lie apart. */
static inline int pinion_mpi_append_named(struct pinion_mpi_list* list, MPI_Datatype type) {
  struct short_int {
    short value;
    int index;
  };
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  if (type != MPI_SHORT_INT) return pinion_mpi_append(list, 0, bytes);
  const int error = pinion_mpi_append(list, 0, sizeof(short));
  return error != 0 ? error : pinion_mpi_append(list, offsetof(struct short_int, index), sizeof(int));
}

/* The blocks of a type whose blocks all have elements of `of`. */
static inline int pinion_mpi_append_blocks(struct pinion_mpi_list* list, const struct pinion_mpi_list* of,
                                           int combiner, const int* ints, const MPI_Aint* addresses) {
  const int count = ints[0];
  int error = 0;
  switch (combiner) {
    case MPI_COMBINER_CONTIGUOUS:
      return pinion_mpi_append_block(list, of, 0, count);
    case MPI_COMBINER_VECTOR:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, (MPI_Aint)i * ints[2] * of->extent, ints[1]);
      return error;
    case MPI_COMBINER_HVECTOR:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, i * addresses[0], ints[1]);
      return error;
    case MPI_COMBINER_INDEXED:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, ints[1 + count + i] * of->extent, ints[1 + i]);
      return error;
    case MPI_COMBINER_HINDEXED:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, addresses[i], ints[1 + i]);
      return error;
    case MPI_COMBINER_INDEXED_BLOCK:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, ints[2 + i] * of->extent, ints[1]);
      return error;
    case MPI_COMBINER_HINDEXED_BLOCK:
      for (int i = 0; i < count && error == 0; ++i)
        error = pinion_mpi_append_block(list, of, addresses[i], ints[1]);
      return error;
    case MPI_COMBINER_SUBARRAY:
      return pinion_mpi_append_subarray(list, of, ints, 0, 0);
    default:
      return ENOTSUP; /* MPI_Type_create_darray(), and types that came later */
  }
}

static inline int pinion_mpi_flatten(MPI_Datatype type, struct pinion_mpi_list* list);

/* A derived type, from the types that it was made of. */
static inline int pinion_mpi_append_derived(struct pinion_mpi_list* list, int combiner, const int* ints,
                                            const MPI_Aint* addresses, const MPI_Datatype* types, int count) {
  int error = 0;
  for (int i = 0; i < count && error == 0; ++i) {
    struct pinion_mpi_list of;
    error = pinion_mpi_flatten(types[i], &of);
    if (error == 0) switch (combiner) {
        case MPI_COMBINER_DUP:
        case MPI_COMBINER_RESIZED:
          error = pinion_mpi_append_block(list, &of, 0, 1);
          break;
        case MPI_COMBINER_STRUCT:
          error = pinion_mpi_append_block(list, &of, addresses[i], ints[1 + i]);
          break;
        default:
          error = pinion_mpi_append_blocks(list, &of, combiner, ints, addresses);
      }
    free(of.pieces);
  }
  return error;
}

/* `list->pieces` is to be freed, also after an error. */
static inline int pinion_mpi_flatten(MPI_Datatype type, struct pinion_mpi_list* list) {
  MPI_Aint lower = 0;
  int ints = 0, addresses = 0, types = 0, combiner = 0;
  memset(list, 0, sizeof *list);
  MPI_Type_get_extent(type, &lower, &list->extent);
  MPI_Type_get_envelope(type, &ints, &addresses, &types, &combiner);
  if (types == 0) return pinion_mpi_append_named(list, type);
  int* const its_ints = (int*)calloc((size_t)ints + 1, sizeof *its_ints);
  MPI_Aint* const its_addresses = (MPI_Aint*)calloc((size_t)addresses + 1, sizeof *its_addresses);
  MPI_Datatype* const its_types = (MPI_Datatype*)calloc((size_t)types, sizeof *its_types);
  int error = ENOMEM;
  if (its_ints != NULL && its_addresses != NULL && its_types != NULL) {
    MPI_Type_get_contents(type, ints, addresses, types, its_ints, its_addresses, its_types);
    error = pinion_mpi_append_derived(list, combiner, its_ints, its_addresses, its_types, types);
    for (int i = 0; i < types; ++i) {
      int made_of = 0;
      MPI_Type_get_envelope(its_types[i], &ints, &addresses, &made_of, &combiner);
      if (made_of != 0) MPI_Type_free(&its_types[i]); /* predefined ones stay */
    }
  }
  free(its_ints);
  free(its_addresses);
  free(its_types);
  return error;
}

/*
 * The pieces of `count` elements of `type` at `buffer`, as pinion_gather_plan() takes them. `*piece_count`:
 * in, the room in `pieces`; out, their number. ENOSPC: the room is short; ENOTSUP: a distributed array
 * (MPI_Type_create_darray) or an unknown type; ENOMEM. Allocates and calls MPI: ordinary code.
 */
static inline int pinion_mpi_pieces(const void* buffer, int count, MPI_Datatype type,
                                    struct pinion_range* pieces, size_t* piece_count) {
  struct pinion_mpi_list one, all;
  memset(&all, 0, sizeof all);
  int error = pinion_mpi_flatten(type, &one);
  if (error == 0) error = pinion_mpi_append_block(&all, &one, 0, count);
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
