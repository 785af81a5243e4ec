#include "intercept/mpi/call_scope.h"

namespace pinion::mpi {

const Library& Library::get() {
  static const Library library = [] {
    Library l{};
    l.type_size = next_symbol<decltype(l.type_size)>("PMPI_Type_size");
    l.type_extent = next_symbol<decltype(l.type_extent)>("PMPI_Type_get_extent");
    l.type_true_extent = next_symbol<decltype(l.type_true_extent)>("PMPI_Type_get_true_extent");
    l.comm_size = next_symbol<decltype(l.comm_size)>("PMPI_Comm_size");
    l.comm_rank = next_symbol<decltype(l.comm_rank)>("PMPI_Comm_rank");
    l.comm_test_inter = next_symbol<decltype(l.comm_test_inter)>("PMPI_Comm_test_inter");
    l.comm_remote_size = next_symbol<decltype(l.comm_remote_size)>("PMPI_Comm_remote_size");
    // mpi.h names the null request by the address of a data symbol, which must not become an undefined symbol
    // of the preload: it is loaded into programs without MPI too.
    l.request_null = next_symbol<MPI_Request>("ompi_request_null");
    return l;
  }();
  return library;
}

Range Buffers::span(const Engine& engine, const void* buffer, MPI_Aint count, MPI_Datatype type) {
  if (count <= 0 || buffer == MPI_IN_PLACE) return {};
  const Library& mpi = Library::get();
  int size = 0;
  if (mpi.type_size(type, &size) != MPI_SUCCESS || size <= 0) return {};
  if (static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(count) < engine.options().threshold)
    return {};
  MPI_Aint lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  mpi.type_extent(type, &lb, &extent);
  mpi.type_true_extent(type, &true_lb, &true_extent);
  // The first and the last element; a negative extent walks downwards.
  const MPI_Aint last = (count - 1) * extent;
  const auto base = reinterpret_cast<Address>(buffer) + static_cast<Address>(true_lb);
  return {base + static_cast<Address>(std::min<MPI_Aint>(0, last)),
          base + static_cast<Address>(std::max<MPI_Aint>(0, last) + true_extent)};
}

void Buffers::uses(Range range, Access access) {
  if (count_ == kMost || peer_ == MPI_PROC_NULL) return;
  if (point_.time == 0) {
    point_.time = ticks_now();
    point_.site = scope_.thread().sites->capture(entry_);
    point_.kind = kind_;
    point_.peer = peer_;
  }
  Transfer& transfer = *new (&slots_[count_++].transfer) Transfer;
  scope_.engine().acquire(scope_.thread(), 0, point_, range, access, transfer);
}

void Buffers::add_blocks(const void* buffer, const int* counts, const int* displacements, int blocks,
                         MPI_Datatype type, Access access) {
  if (buffer == MPI_IN_PLACE) return;
  const Library& mpi = Library::get();
  int size = 0;
  MPI_Aint lb = 0, extent = 0, true_lb = 0, true_extent = 0;
  if (mpi.type_size(type, &size) != MPI_SUCCESS || size <= 0) return;
  mpi.type_extent(type, &lb, &extent);
  mpi.type_true_extent(type, &true_lb, &true_extent);
  std::uint64_t bytes = 0;
  MPI_Aint low = 0, high = 0;
  bool any = false;
  for (int i = 0; i < blocks; ++i) {
    if (counts[i] <= 0) continue;
    const MPI_Aint first = displacements[i] * extent;
    const MPI_Aint last = first + (counts[i] - 1) * extent;
    low = any ? std::min({low, first, last}) : std::min(first, last);
    high = any ? std::max({high, first, last}) : std::max(first, last);
    any = true;
    bytes += static_cast<std::uint64_t>(counts[i]) * static_cast<std::uint64_t>(size);
  }
  if (!any || bytes < scope_.engine().options().threshold) return;
  const auto base = reinterpret_cast<Address>(buffer) + static_cast<Address>(true_lb);
  uses({base + static_cast<Address>(low), base + static_cast<Address>(high + true_extent)}, access);
}

int group_size(MPI_Comm comm) {
  const Library& mpi = Library::get();
  int inter = 0, size = 0;
  mpi.comm_test_inter(comm, &inter);
  (inter ? mpi.comm_remote_size : mpi.comm_size)(comm, &size);
  return size;
}

int local_size(MPI_Comm comm) {
  int size = 0;
  Library::get().comm_size(comm, &size);
  return size;
}

int own_rank(MPI_Comm comm) {
  int rank = -1;
  Library::get().comm_rank(comm, &rank);
  return rank;
}

bool is_root(MPI_Comm comm, int root) {
  if (root == MPI_ROOT) return true;
  int inter = 0;
  Library::get().comm_test_inter(comm, &inter);
  return !inter && own_rank(comm) == root;
}

}  // namespace pinion::mpi
