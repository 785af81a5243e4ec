// The functions and predefined handles of the program's MPI that the front itself needs. Their profiling
// names keep the calls from other tools. Filled by attach() when the MPI is recognised, before any
// wrapper runs; then only read. Members are null where the MPI is too old to have the function.
#pragma once

#include "intercept/mpi/abi.h"

namespace pinion::mpi::PINION_MPI_ABI {

struct Library {
  int (*type_size)(Datatype, int*);
  int (*type_size_x)(Datatype, Count*);
  int (*type_extent)(Datatype, Aint*, Aint*);
  int (*type_true_extent)(Datatype, Aint*, Aint*);
  int (*type_envelope)(Datatype, int*, int*, int*, int*);
  int (*type_envelope_large)(Datatype, Count*, Count*, Count*, Count*, int*);
  int (*type_contents)(Datatype, int, int, int, int*, Aint*, Datatype*);
  int (*type_contents_large)(Datatype, Count, Count, Count, Count, int*, Aint*, Count*, Datatype*);
  int (*type_free)(Datatype*);
  int (*comm_size)(Comm, int*);
  int (*comm_rank)(Comm, int*);
  int (*comm_test_inter)(Comm, int*);
  int (*comm_remote_size)(Comm, int*);
  int (*comm_group)(Comm, Group*);
  int (*comm_remote_group)(Comm, Group*);
  int (*comm_get_parent)(Comm*);
  int (*comm_split_type)(Comm, int, int, Info, Comm*);
  int (*comm_free)(Comm*);
  int (*comm_create_keyval)(int (*copy)(Comm, int, void*, void*, void*, int*),
                            int (*remove)(Comm, int, void*, void*), int*, void*);
  int (*comm_get_attr)(Comm, int, void*, int*);
  int (*comm_set_attr)(Comm, int, void*);
  int (*win_get_group)(Win, Group*);
  int (*group_size)(Group, int*);
  int (*group_free)(Group*);
  int (*group_translate_ranks)(Group, int, const int*, Group, int*);
  int (*topo_test)(Comm, int*);
  int (*cartdim_get)(Comm, int*);
  int (*graph_neighbors_count)(Comm, int, int*);
  int (*dist_graph_neighbors_count)(Comm, int*, int*, int*);
  int (*get_count_large)(const Status*, Datatype, Count*);
  int (*test_cancelled)(const Status*, int*);

  Comm comm_world, comm_null;
  Datatype datatype_null, short_int;
  Info info_null;
  Op no_op;
  Request request_null;
  Win win_null;
};

extern Library g_library;
inline const Library& library() { return g_library; }

/// Fills g_library from a dlopen handle of the MPI library.
void attach(void* handle);

}  // namespace pinion::mpi::PINION_MPI_ABI
