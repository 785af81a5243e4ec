#include "intercept/mpi/call_scope.h"

#include <new>

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

namespace {

/// Where the data of a type lie.
struct Layout {
  MPI_Aint extent = 0, true_lb = 0, true_extent = 0;

  explicit Layout(MPI_Datatype type) {
    MPI_Aint lb = 0;
    Library::get().type_extent(type, &lb, &extent);
    Library::get().type_true_extent(type, &true_lb, &true_extent);
  }
  /// From the first byte of `count` elements to the last. A negative extent walks downwards.
  Range hull(Address buffer, MPI_Aint count) const {
    const MPI_Aint last = (count - 1) * extent;
    const Address base = buffer + static_cast<Address>(true_lb);
    return {base + static_cast<Address>(std::min<MPI_Aint>(0, last)),
            base + static_cast<Address>(std::max<MPI_Aint>(0, last) + true_extent)};
  }
};

std::uint64_t size_of(MPI_Datatype type) {
  int size = 0;
  return Library::get().type_size(type, &size) == MPI_SUCCESS && size > 0 ? static_cast<unsigned>(size) : 0;
}

// Scattered data is packed by every MPI (copied into one piece) instead of registered, and what lies between
// may be another allocation's, or no memory at all.
bool scattered(Range hull, std::uint64_t data) {
  constexpr std::uint64_t kMostBytesPerByte = 2;
  return hull.bytes() / kMostBytesPerByte > data;
}

}  // namespace

Range Buffers::span(const Engine& engine, const void* buffer, MPI_Aint count, MPI_Datatype type) {
  if (count <= 0 || buffer == MPI_IN_PLACE) return {};
  const std::uint64_t data = size_of(type) * static_cast<std::uint64_t>(count);
  if (data < engine.threshold()) return {};
  const Range hull = Layout(type).hull(reinterpret_cast<Address>(buffer), count);
  return scattered(hull, data) ? Range{} : hull;
}

void Buffers::uses(Range range, Access access) {
  if (peer_ == MPI_PROC_NULL) return;
  scope_.thread().recent.prefetch(range.begin);
  if (point_.time == 0) {
    point_.time = ticks_now();
    point_.site = scope_.thread().sites->capture(entry_);
    point_.kind = kind_;
    point_.peer = peer_;
  }
  Transfer& transfer =
      count_ < slots_.size() ? *new (&slots_[count_++].transfer) Transfer : more_.emplace_back();
  scope_.engine().acquire(scope_.thread(), 0, point_, range, access, transfer);
}

void Buffers::add_blocks(const void* buffer, const int* counts, const int* displacements, int blocks,
                         MPI_Datatype type, Access access) {
  if (buffer == MPI_IN_PLACE) return;
  std::uint64_t data = 0;
  for (int i = 0; i < blocks; ++i) data += static_cast<unsigned>(std::max(0, counts[i]));
  data *= size_of(type);
  if (data < scope_.engine().threshold()) return;
  const Layout layout(type);
  const auto block = [&](int i) {
    return reinterpret_cast<Address>(buffer) + static_cast<Address>(displacements[i] * layout.extent);
  };
  Range all{};
  for (int i = 0; i < blocks; ++i) {
    if (counts[i] <= 0) continue;
    const Range one = layout.hull(block(i), counts[i]);
    all = all.empty() ? one : Range{std::min(all.begin, one.begin), std::max(all.end, one.end)};
  }
  if (!scattered(all, data)) return uses(all, access);
  for (int i = 0; i < blocks; ++i) add(reinterpret_cast<const void*>(block(i)), counts[i], type, access);
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
