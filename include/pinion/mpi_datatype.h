/*
 * The pieces of memory that a derived datatype of MPI touches, decoded from the calls that made the type. A
 * part of pinion/mpi_gather.h and of Pinion's MPI front. Calls only MPI's functions about datatypes. Any
 * thread that may call MPI; the type stays the caller's.
 *
 * Written against the names of mpi.h, which the including file provides (the front: its own for each ABI),
 * and against two functions of that file, with the parameters of MPI_Type_get_envelope_c() and
 * MPI_Type_get_contents_c(): pinion_mpi_get_envelope() and pinion_mpi_get_contents().
 */
#ifndef PINION_MPI_DATATYPE_H
#define PINION_MPI_DATATYPE_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct pinion_mpi_piece {
  MPI_Aint offset, bytes;
  MPI_Aint data; /* bytes of data in it: less than `bytes` where pieces were joined over a gap */
};

/* Pieces of one element of a type, at offsets from its address. */
struct pinion_mpi_list {
  struct pinion_mpi_piece* pieces;
  size_t count, room;
  MPI_Aint extent; /* from one element to the next */
};

struct pinion_mpi_bounds {
  /* 0: pieces keep MPI_Pack's order, and two are joined where one ends at the other's begin. Else two that
     follow each other in the list are joined where their distance in memory is at most this. */
  MPI_Aint gap;
  size_t pieces; /* the most in a list; ENOSPC beyond */
  size_t steps;  /* of decoding, counted down; ENOSPC at the end */
};
#define PINION_MPI_UNBOUNDED \
  { 0, (size_t)-1, (size_t)-1 }

/* Whether the piece joins `last`. */
static inline int pinion_mpi_join(const struct pinion_mpi_bounds* bounds, struct pinion_mpi_piece* last,
                                  const struct pinion_mpi_piece* piece) {
  const MPI_Aint last_end = last->offset + last->bytes, end = piece->offset + piece->bytes;
  if (bounds->gap == 0 ? piece->offset != last_end
                       : piece->offset - last_end > bounds->gap || last->offset - end > bounds->gap)
    return 0;
  const MPI_Aint begin = piece->offset < last->offset ? piece->offset : last->offset;
  last->bytes = (end > last_end ? end : last_end) - begin;
  last->offset = begin;
  last->data += piece->data;
  if (last->data > last->bytes) last->data = last->bytes; /* they overlap */
  return 1;
}

static inline int pinion_mpi_append(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                    struct pinion_mpi_piece piece) {
  if (piece.bytes == 0) return 0;
  if (bounds->steps == 0) return ENOSPC;
  --bounds->steps;
  if (list->count > 0 && pinion_mpi_join(bounds, &list->pieces[list->count - 1], &piece)) return 0;
  if (list->count == bounds->pieces) return ENOSPC;
  if (list->count == list->room) {
    const size_t room = list->room == 0 ? 8 : 2 * list->room;
    void* const grown = realloc(list->pieces, room * sizeof *list->pieces);
    if (grown == NULL) return ENOMEM;
    list->pieces = (struct pinion_mpi_piece*)grown;
    list->room = room;
  }
  list->pieces[list->count++] = piece;
  return 0;
}

/* Whether elements of one piece are one piece side by side: they need no walk. */
static inline int pinion_mpi_is_dense(const struct pinion_mpi_list* of,
                                      const struct pinion_mpi_bounds* bounds) {
  if (of->count != 1) return 0;
  const MPI_Aint bytes = of->pieces[0].bytes;
  if (of->extent == bytes) return 1;
  return bounds->gap > 0 && (of->extent < 0 ? -of->extent : of->extent) <= bytes + bounds->gap;
}

/* `count` elements of `of`, the first at `offset`. */
static inline int pinion_mpi_append_block(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                          const struct pinion_mpi_list* of, MPI_Aint offset, MPI_Aint count) {
  if (count <= 0 || of->count == 0) return 0;
  struct pinion_mpi_piece piece;
  if (pinion_mpi_is_dense(of, bounds)) {
    const MPI_Aint reach = (count - 1) * of->extent;
    piece = of->pieces[0];
    piece.offset += offset + (reach < 0 ? reach : 0);
    piece.bytes += reach < 0 ? -reach : reach;
    piece.data = count * piece.data < piece.bytes ? count * piece.data : piece.bytes;
    return pinion_mpi_append(list, bounds, piece);
  }
  for (MPI_Aint i = 0; i < count; ++i, offset += of->extent)
    for (size_t at = 0; at < of->count; ++at) {
      piece = of->pieces[at];
      piece.offset += offset;
      const int error = pinion_mpi_append(list, bounds, piece);
      if (error != 0) return error;
    }
  return 0;
}

/* `count` blocks of `length` elements, `stride` bytes apart. */
static inline int pinion_mpi_append_strided(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                            const struct pinion_mpi_list* of, MPI_Aint count, MPI_Aint length,
                                            MPI_Aint stride) {
  struct pinion_mpi_list block;
  memset(&block, 0, sizeof block);
  int error = pinion_mpi_append_block(&block, bounds, of, 0, length);
  block.extent = stride;
  if (error == 0) error = pinion_mpi_append_block(list, bounds, &block, 0, count);
  free(block.pieces);
  return error;
}

/* Blocks at offsets in units of `unit` bytes, of lengths of their own, or all of `length` where `lengths` is
 * null. */
static inline int pinion_mpi_append_indexed(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                            const struct pinion_mpi_list* of, MPI_Aint count,
                                            const MPI_Aint* lengths, MPI_Aint length, const MPI_Aint* offsets,
                                            MPI_Aint unit) {
  int error = 0;
  for (MPI_Aint i = 0; i < count && error == 0; ++i)
    error = pinion_mpi_append_block(list, bounds, of, offsets[i] * unit, lengths ? lengths[i] : length);
  return error;
}

/* One dimension of an array: blocks of `length` from `first` on, `step` apart, none beyond `end`. */
struct pinion_mpi_dimension {
  MPI_Aint size, first, length, step, end;
};

/* A part of an array, given by its dimensions, the first of which changes fastest. */
static inline int pinion_mpi_append_array(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                          const struct pinion_mpi_list* of, MPI_Aint dimensions,
                                          const struct pinion_mpi_dimension* dimension) {
  struct pinion_mpi_list lower = *of, next;
  struct pinion_mpi_piece* owned = NULL;
  int error = 0;
  for (MPI_Aint i = 0; i < dimensions && error == 0; ++i, ++dimension) {
    memset(&next, 0, sizeof next);
    next.extent = lower.extent * dimension->size;
    for (MPI_Aint at = dimension->first; at < dimension->end && error == 0; at += dimension->step) {
      const MPI_Aint left = dimension->end - at;
      error = pinion_mpi_append_block(&next, bounds, &lower, at * lower.extent,
                                      dimension->length < left ? dimension->length : left);
    }
    free(owned);
    owned = next.pieces;
    lower = next;
  }
  if (error == 0) error = pinion_mpi_append_block(list, bounds, &lower, 0, 1);
  free(owned);
  return error;
}

/* Describes MPI_Type_create_subarray(): dimensions, sizes, sizes and starts of the part, order. */
static inline void pinion_mpi_subarray(const MPI_Aint* numbers, struct pinion_mpi_dimension* dimension) {
  const MPI_Aint dimensions = numbers[0], *const sizes = numbers + 1, *const subsizes = sizes + dimensions,
                 *const starts = subsizes + dimensions;
  const int is_c = starts[dimensions] == MPI_ORDER_C;
  for (MPI_Aint i = 0; i < dimensions; ++i, ++dimension) {
    const MPI_Aint at = is_c ? dimensions - 1 - i : i;
    dimension->size = dimension->step = sizes[at];
    dimension->first = starts[at];
    dimension->length = subsizes[at];
    dimension->end = starts[at] + subsizes[at];
  }
}

/* One dimension of a distributed array, as process `place` of `processes` has it. */
static inline void pinion_mpi_distribute(struct pinion_mpi_dimension* dimension, MPI_Aint size,
                                         MPI_Aint distribution, MPI_Aint argument, MPI_Aint processes,
                                         MPI_Aint place) {
  const int by_default = argument == MPI_DISTRIBUTE_DFLT_DARG;
  dimension->size = dimension->step = dimension->length = dimension->end = size;
  if (distribution == MPI_DISTRIBUTE_BLOCK) {
    dimension->length = by_default ? (size + processes - 1) / processes : argument;
    if (size > (place + 1) * dimension->length) dimension->end = (place + 1) * dimension->length;
  } else if (distribution == MPI_DISTRIBUTE_CYCLIC) {
    dimension->length = by_default ? 1 : argument;
    dimension->step = processes * dimension->length;
  } else {
    place = 0;
  }
  dimension->first = place * dimension->length;
}

/* Describes MPI_Type_create_darray(): processes, rank, dimensions, sizes, distributions, their
   arguments, processes of each dimension, order. Ranks are in C's order always. */
static inline void pinion_mpi_darray(const MPI_Aint* numbers, struct pinion_mpi_dimension* dimension) {
  const MPI_Aint dimensions = numbers[2], *const sizes = numbers + 3,
                 *const distributions = sizes + dimensions, *const arguments = distributions + dimensions,
                 *const processes = arguments + dimensions;
  const int is_c = processes[dimensions] == MPI_ORDER_C;
  MPI_Aint below = numbers[0], rank = numbers[1];
  for (MPI_Aint i = 0; i < dimensions; ++i) {
    below /= processes[i];
    pinion_mpi_distribute(&dimension[is_c ? dimensions - 1 - i : i], sizes[i], distributions[i], arguments[i],
                          processes[i], rank / below);
    rank %= below;
  }
}

static inline int pinion_mpi_append_part(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                         const struct pinion_mpi_list* of, int combiner,
                                         const MPI_Aint* numbers) {
  const MPI_Aint dimensions = combiner == MPI_COMBINER_SUBARRAY ? numbers[0] : numbers[2];
  struct pinion_mpi_dimension* const all =
      (struct pinion_mpi_dimension*)calloc((size_t)dimensions + 1, sizeof *all);
  if (all == NULL) return ENOMEM;
  (combiner == MPI_COMBINER_SUBARRAY ? pinion_mpi_subarray : pinion_mpi_darray)(numbers, all);
  const int error = pinion_mpi_append_array(list, bounds, of, dimensions, all);
  free(all);
  return error;
}

/* A predefined type: one piece, but for MPI_SHORT_INT, whose parts lie apart. */
static inline int pinion_mpi_append_named(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                          MPI_Datatype type) {
  struct short_int {
    short value;
    int index;
  };
  const struct pinion_mpi_piece value = {0, sizeof(short), sizeof(short)},
                                index = {offsetof(struct short_int, index), sizeof(int), sizeof(int)};
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  const struct pinion_mpi_piece whole = {0, bytes, bytes};
  if (type != MPI_SHORT_INT) return pinion_mpi_append(list, bounds, whole);
  const int error = pinion_mpi_append(list, bounds, value);
  return error != 0 ? error : pinion_mpi_append(list, bounds, index);
}

/* The call that made a type. */
struct pinion_mpi_call {
  int combiner;
  MPI_Count ints, addresses, counts, types;
  MPI_Aint* numbers; /* its integers, then its addresses; large counts at the place of the integers they stand
                        for */
  MPI_Datatype* made_of;
};

/* Whether types made so can be freed: predefined types cannot. */
static inline int pinion_mpi_is_derived(int combiner) {
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_CONTIGUOUS:
    case MPI_COMBINER_VECTOR:
    case MPI_COMBINER_HVECTOR:
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
    case MPI_COMBINER_STRUCT:
    case MPI_COMBINER_SUBARRAY:
    case MPI_COMBINER_DARRAY:
    case MPI_COMBINER_RESIZED:
      return 1;
    default:
      return 0;
  }
}

static inline int pinion_mpi_ask_envelope(MPI_Datatype type, struct pinion_mpi_call* call) {
  memset(call, 0, sizeof *call);
  return pinion_mpi_get_envelope(type, &call->ints, &call->addresses, &call->counts, &call->types,
                                 &call->combiner) == MPI_SUCCESS
             ? 0
             : EINVAL;
}

/* Takes the integers and the counts; the addresses are in their place already. */
static inline void pinion_mpi_set_numbers(struct pinion_mpi_call* call, const int* ints,
                                          const MPI_Count* counts) {
  /* These calls have both: the counts are the sizes of an array. */
  const MPI_Count first = call->combiner == MPI_COMBINER_DARRAY     ? 3
                          : call->combiner == MPI_COMBINER_SUBARRAY ? 1
                                                                    : call->ints;
  MPI_Aint* to = call->numbers;
  for (MPI_Count i = 0; i < first; ++i) *to++ = ints[i];
  for (MPI_Count i = 0; i < call->counts; ++i) *to++ = (MPI_Aint)counts[i];
  for (MPI_Count i = first; i < call->ints; ++i) *to++ = ints[i];
}

static inline int pinion_mpi_ask_contents(MPI_Datatype type, struct pinion_mpi_call* call) {
  int* const ints = (int*)calloc((size_t)call->ints + 1, sizeof *ints);
  MPI_Count* const counts = (MPI_Count*)calloc((size_t)call->counts + 1, sizeof *counts);
  const MPI_Count numbers = call->ints + call->counts;
  call->numbers = (MPI_Aint*)calloc((size_t)(numbers + call->addresses) + 1, sizeof *call->numbers);
  call->made_of = (MPI_Datatype*)calloc((size_t)call->types, sizeof *call->made_of);
  int error = ENOMEM;
  if (ints != NULL && counts != NULL && call->numbers != NULL && call->made_of != NULL) {
    error = pinion_mpi_get_contents(type, call->ints, call->addresses, call->counts, call->types, ints,
                                    call->numbers + numbers, counts, call->made_of) == MPI_SUCCESS
                ? 0
                : EINVAL;
    if (error == 0) pinion_mpi_set_numbers(call, ints, counts);
  }
  free(ints);
  free(counts);
  return error;
}

/* A type whose elements are all of one type. */
static inline int pinion_mpi_append_uniform(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                            const struct pinion_mpi_list* of, int combiner,
                                            const MPI_Aint* numbers) {
  const MPI_Aint count = numbers[0];
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED:
      return pinion_mpi_append_block(list, bounds, of, 0, 1);
    case MPI_COMBINER_CONTIGUOUS:
      return pinion_mpi_append_block(list, bounds, of, 0, count);
    case MPI_COMBINER_VECTOR:
      return pinion_mpi_append_strided(list, bounds, of, count, numbers[1], numbers[2] * of->extent);
    case MPI_COMBINER_HVECTOR:
      return pinion_mpi_append_strided(list, bounds, of, count, numbers[1], numbers[2]);
    case MPI_COMBINER_INDEXED:
    case MPI_COMBINER_HINDEXED:
      return pinion_mpi_append_indexed(list, bounds, of, count, numbers + 1, 0, numbers + 1 + count,
                                       combiner == MPI_COMBINER_INDEXED ? of->extent : 1);
    case MPI_COMBINER_INDEXED_BLOCK:
    case MPI_COMBINER_HINDEXED_BLOCK:
      return pinion_mpi_append_indexed(list, bounds, of, count, NULL, numbers[1], numbers + 2,
                                       combiner == MPI_COMBINER_INDEXED_BLOCK ? of->extent : 1);
    default:
      return pinion_mpi_append_part(list, bounds, of, combiner, numbers);
  }
}

static inline int pinion_mpi_flatten(MPI_Datatype type, struct pinion_mpi_bounds* bounds,
                                     struct pinion_mpi_list* list);

/* A derived type, from the types that it was made of. */
static inline int pinion_mpi_append_derived(struct pinion_mpi_list* list, struct pinion_mpi_bounds* bounds,
                                            const struct pinion_mpi_call* call) {
  const MPI_Aint *const lengths = call->numbers + 1, *const offsets = lengths + call->types;
  struct pinion_mpi_list of;
  memset(&of, 0, sizeof of);
  int error = 0;
  for (MPI_Count i = 0; i < call->types && error == 0; ++i) {
    if (i == 0 || call->made_of[i] != call->made_of[i - 1]) {
      free(of.pieces);
      error = pinion_mpi_flatten(call->made_of[i], bounds, &of);
    }
    if (error == 0)
      error = call->combiner == MPI_COMBINER_STRUCT
                  ? pinion_mpi_append_block(list, bounds, &of, offsets[i], lengths[i])
                  : pinion_mpi_append_uniform(list, bounds, &of, call->combiner, call->numbers);
  }
  free(of.pieces);
  return error;
}

/*
 * The pieces of one element, neighbours joined. ENOTSUP: a type that came later than MPI 4.0. `list->pieces`
 * is to be freed, also after an error.
 */
static inline int pinion_mpi_flatten(MPI_Datatype type, struct pinion_mpi_bounds* bounds,
                                     struct pinion_mpi_list* list) {
  MPI_Aint lower = 0;
  struct pinion_mpi_call call, inner;
  memset(list, 0, sizeof *list);
  int error = pinion_mpi_ask_envelope(type, &call);
  if (error != 0) return error;
  MPI_Type_get_extent(type, &lower, &list->extent);
  if (call.types == 0) return pinion_mpi_append_named(list, bounds, type);
  if (!pinion_mpi_is_derived(call.combiner)) return ENOTSUP;
  const size_t steps = (size_t)(call.ints + call.addresses + call.counts + call.types);
  if (steps > bounds->steps) return ENOSPC;
  bounds->steps -= steps;
  error = pinion_mpi_ask_contents(type, &call);
  if (error == 0) {
    error = pinion_mpi_append_derived(list, bounds, &call);
    for (MPI_Count i = 0; i < call.types; ++i)
      if (pinion_mpi_ask_envelope(call.made_of[i], &inner) == 0 && pinion_mpi_is_derived(inner.combiner))
        MPI_Type_free(&call.made_of[i]);
  }
  free(call.numbers);
  free(call.made_of);
  return error;
}

#endif
