#include "intercept/mpi/library.h"

#include <dlfcn.h>

#include "intercept/exports.h"
#include "intercept/mpi/type_sizes.h"

namespace pinion::mpi::PINION_MPI_ABI {

Library g_library;

void attach(void* handle) {
  const auto find = [handle]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(real_dlsym()(handle, name));
  };
  Library& l = g_library;
  find(l.type_size, "PMPI_Type_size");
  find(l.type_size_x, "PMPI_Type_size_x");
  find(l.type_extent, "PMPI_Type_get_extent");
  find(l.type_true_extent, "PMPI_Type_get_true_extent");
  find(l.type_envelope, "PMPI_Type_get_envelope");
  find(l.type_envelope_large, "PMPI_Type_get_envelope_c");
  find(l.type_contents, "PMPI_Type_get_contents");
  find(l.type_contents_large, "PMPI_Type_get_contents_c");
  find(l.type_free, "PMPI_Type_free");
  find(l.comm_size, "PMPI_Comm_size");
  find(l.comm_rank, "PMPI_Comm_rank");
  find(l.comm_test_inter, "PMPI_Comm_test_inter");
  find(l.comm_remote_size, "PMPI_Comm_remote_size");
  find(l.comm_group, "PMPI_Comm_group");
  find(l.comm_remote_group, "PMPI_Comm_remote_group");
  find(l.comm_get_parent, "PMPI_Comm_get_parent");
  find(l.comm_split_type, "PMPI_Comm_split_type");
  find(l.comm_free, "PMPI_Comm_free");
  find(l.comm_create_keyval, "PMPI_Comm_create_keyval");
  find(l.comm_get_attr, "PMPI_Comm_get_attr");
  find(l.comm_set_attr, "PMPI_Comm_set_attr");
  find(l.win_get_group, "PMPI_Win_get_group");
  find(l.group_size, "PMPI_Group_size");
  find(l.group_free, "PMPI_Group_free");
  find(l.group_translate_ranks, "PMPI_Group_translate_ranks");
  find(l.topo_test, "PMPI_Topo_test");
  find(l.cartdim_get, "PMPI_Cartdim_get");
  find(l.graph_neighbors_count, "PMPI_Graph_neighbors_count");
  find(l.dist_graph_neighbors_count, "PMPI_Dist_graph_neighbors_count");
  find(l.get_count_large, "PMPI_Get_count_c");
  find(l.test_cancelled, "PMPI_Test_cancelled");

  // A program that was linked with MPI may have the data in itself (copy relocations), and the library uses
  // that.
  const auto symbol = [handle](const char* name) {
    void* const linked = real_dlsym()(RTLD_DEFAULT, name);
    return linked ? linked : real_dlsym()(handle, name);
  };
  l.comm_world = predefined<Comm>(Predefined::kCommWorld, symbol);
  l.comm_null = predefined<Comm>(Predefined::kCommNull, symbol);
  l.datatype_null = predefined<Datatype>(Predefined::kDatatypeNull, symbol);
  l.short_int = predefined<Datatype>(Predefined::kShortInt, symbol);
  l.info_null = predefined<Info>(Predefined::kInfoNull, symbol);
  l.no_op = predefined<Op>(Predefined::kNoOp, symbol);
  l.request_null = predefined<Request>(Predefined::kRequestNull, symbol);
  l.win_null = predefined<Win>(Predefined::kWinNull, symbol);
  for (const auto type : Predefined::kTypes) g_type_sizes.expect(predefined<Datatype>(type, symbol));
}

}  // namespace pinion::mpi::PINION_MPI_ABI
