// An MPI of MPICH's ABI whose functions do nothing and succeed, but for the one that is armed: it calls what
// the program has it leave by. The program is one process of one rank.
#include "stub.h"

const char* ways_out_armed = nullptr;
const char* ways_out_armed_too = nullptr;
int ways_out_calls_too = 0;
void (*ways_out_leave)() = nullptr;
thread_local bool ways_out_here = false;

extern "C" {

#define STUB(name) \
  int name() { return leave_if_armed(#name), 0; }
#include "mpi_stub.inc"

int PMPI_Get_library_version(char* text, int* length) {
  std::strcpy(text, "MPICH, made up");
  *length = static_cast<int>(std::strlen(text));
  return 0;
}
int PMPI_Type_size(int, int* bytes) { return *bytes = 1, 0; }
int PMPI_Type_size_x(int, long long* bytes) { return *bytes = 1, 0; }
int PMPI_Type_get_extent(int, long* begin, long* extent) { return *begin = 0, *extent = 1, 0; }
int PMPI_Type_get_true_extent(int, long* begin, long* extent) { return *begin = 0, *extent = 1, 0; }
int PMPI_Comm_size(int, int* size) { return *size = 1, 0; }
int PMPI_Comm_rank(int, int* rank) { return *rank = 0, 0; }
int PMPI_Comm_test_inter(int, int* inter) { return *inter = 0, 0; }
int PMPI_Comm_get_parent(int* parent) { return *parent = 0x04000000, 0; }
int PMPI_Topo_test(int, int* topology) { return *topology = 2, 0; }
int PMPI_Cartdim_get(int, int* dimensions) { return *dimensions = 1, 0; }
}
