// Derived types with gaps: each block of data lies in memory of its own, and between the blocks nothing is
// mapped. Two ranks exchange such data by calls of each sort.
//
//     mpi_gaps --list      every case: its name, the leases of a rank, and the bytes that they register
//     mpi_gaps [CASE...]   these, or all
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "check.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
constexpr std::size_t kArea = std::size_t{16} << 20, kMiddle = kArea / 2;
constexpr std::size_t kPage = 64 << 10;  // a multiple of every page
int me, other;

struct Block {
  std::ptrdiff_t offset;  // from the buffer's address
  std::size_t bytes;
};

struct Case {
  const char* name;
  int count;
  std::vector<Block> blocks;  // in the order of the data
  std::size_t leases, registered;
  MPI_Datatype (*make)(MPI_Aint address);
  bool absolute = false;  // the type has addresses, the buffer is MPI_BOTTOM
};

std::vector<Block> blocks(std::size_t n, std::ptrdiff_t first, std::ptrdiff_t step, std::size_t bytes) {
  std::vector<Block> all;
  for (std::size_t i = 0; i < n; ++i) all.push_back({first + static_cast<std::ptrdiff_t>(i) * step, bytes});
  return all;
}
std::vector<Block> operator+(std::vector<Block> a, const std::vector<Block>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

constexpr int kInts = kPage / sizeof(int);

MPI_Datatype freed_after(MPI_Datatype made, MPI_Datatype of) {
  MPI_Type_free(&of);
  return made;
}
MPI_Datatype contiguous(int count) {
  MPI_Datatype type;
  MPI_Type_contiguous(count, MPI_INT, &type);
  return type;
}

// Slabs of 16 rows of each plane, of 64 rows of 4 KiB.
MPI_Datatype slabs(MPI_Aint) {
  const int sizes[] = {8, 64, 1024}, parts[] = {8, 16, 1024}, starts[] = {0, 16, 0};
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type);
  return type;
}
MPI_Datatype fortran_slabs(MPI_Aint) {
  const int sizes[] = {1024, 64, 8}, parts[] = {1024, 16, 8}, starts[] = {0, 16, 0};
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &type);
  return type;
}
MPI_Datatype vector(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_vector(4, kInts, 2 * kInts, MPI_INT, &type);
  return type;
}
MPI_Datatype backwards(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_create_hvector(4, kInts, -2 * static_cast<MPI_Aint>(kPage), MPI_INT, &type);
  return type;
}
MPI_Datatype indexed(MPI_Aint) {
  const int lengths[] = {kInts, 0, 2 * kInts, kInts}, offsets[] = {8 * kInts, kInts, 0, 4 * kInts};
  MPI_Datatype type;
  MPI_Type_indexed(4, lengths, offsets, MPI_INT, &type);
  return type;
}
MPI_Datatype indexed_blocks(MPI_Aint) {
  const MPI_Aint offsets[] = {6 * kPage, 0, 2 * kPage};
  MPI_Datatype type;
  MPI_Type_create_hindexed_block(3, kInts, offsets, MPI_INT, &type);
  return type;
}
MPI_Datatype absolute(MPI_Aint address) {
  const int lengths[] = {kInts, 2 * kInts};
  const MPI_Aint addresses[] = {address, address + 30 * static_cast<MPI_Aint>(kPage)};
  const MPI_Datatype types[] = {MPI_INT, MPI_FLOAT};
  MPI_Datatype type;
  MPI_Type_create_struct(2, lengths, addresses, types, &type);
  return type;
}
// Two blocks, in elements further apart than they are long.
MPI_Datatype resized(MPI_Aint) {
  MPI_Datatype pair = vector(0), type;
  MPI_Type_create_resized(pair, 0, 16 * static_cast<MPI_Aint>(kPage), &type);
  return freed_after(type, pair);
}
MPI_Datatype downwards(MPI_Aint) {
  MPI_Datatype block = contiguous(kInts), type;
  MPI_Type_create_resized(block, 0, -4 * static_cast<MPI_Aint>(kPage), &type);
  return freed_after(type, block);
}
// A type made of made types, which are freed; and a copy of it.
MPI_Datatype nested(MPI_Aint) {
  const int lengths[] = {1, 2};
  const MPI_Aint offsets[] = {0, 32 * kPage};
  MPI_Datatype pieces = vector(0), block = contiguous(kInts), both, type;
  const MPI_Datatype types[] = {pieces, block};
  MPI_Type_create_struct(2, lengths, offsets, types, &both);
  MPI_Type_dup(both, &type);
  MPI_Type_free(&both);
  MPI_Type_free(&block);
  return freed_after(type, pieces);
}
// Cyclic, as the second of four processes has it.
MPI_Datatype distributed(MPI_Aint) {
  const int sizes[] = {16 * kInts}, how[] = {MPI_DISTRIBUTE_CYCLIC}, arguments[] = {kInts}, processes[] = {4};
  MPI_Datatype type;
  MPI_Type_create_darray(4, 1, 1, sizes, how, arguments, processes, MPI_ORDER_C, MPI_INT, &type);
  return type;
}
// No whole page lies in the gaps.
MPI_Datatype near(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_create_hvector(4, kInts - 1000, kPage, MPI_INT, &type);
  return type;
}
// Blocks of less than the threshold: MPI packs them.
MPI_Datatype small(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_create_hvector(16, 512, kPage, MPI_INT, &type);
  return type;
}
MPI_Datatype large_and_small(MPI_Aint) {
  int lengths[9] = {2 * kInts};
  MPI_Aint offsets[9] = {0};
  for (int i = 1; i < 9; ++i) {
    lengths[i] = 512;
    offsets[i] = 4 * i * static_cast<MPI_Aint>(kPage);
  }
  MPI_Datatype type;
  MPI_Type_create_hindexed(9, lengths, offsets, MPI_INT, &type);
  return type;
}
// More blocks than are leased one by one: as one region, with the gaps.
MPI_Datatype many(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_create_hvector(65, kInts, 3 * kPage / 2, MPI_INT, &type);
  return type;
}
#if MPI_VERSION >= 4
MPI_Datatype large_counts(MPI_Aint) {
  MPI_Datatype type;
  MPI_Type_vector_c(4, kInts, 2 * kInts, MPI_INT, &type);
  return type;
}
MPI_Datatype large_slabs(MPI_Aint) {
  const MPI_Count sizes[] = {8, 64, 1024}, parts[] = {8, 16, 1024}, starts[] = {0, 16, 0};
  MPI_Datatype type;
  MPI_Type_create_subarray_c(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &type);
  return type;
}
#endif

const std::vector<Case>& cases() {
  constexpr std::size_t P = kPage;
  constexpr auto S = static_cast<std::ptrdiff_t>(kPage);
  static const std::vector<Case> all = {
    {"slabs", 1, blocks(8, S, 4 * S, P), 8, 8 * P, slabs},
    {"fortran_slabs", 1, blocks(8, S, 4 * S, P), 8, 8 * P, fortran_slabs},
    {"vector", 1, blocks(4, 0, 2 * S, P), 4, 4 * P, vector},
    {"backwards", 1, blocks(4, 0, -2 * S, P), 4, 4 * P, backwards},
    {"indexed", 1, {{8 * S, P}, {0, 2 * P}, {4 * S, P}}, 3, 4 * P, indexed},
    {"indexed_blocks", 1, {{6 * S, P}, {0, P}, {2 * S, P}}, 3, 3 * P, indexed_blocks},
    {"absolute", 1, {{0, P}, {30 * S, 2 * P}}, 2, 3 * P, absolute, true},
    {"resized", 3, blocks(4, 0, 2 * S, P) + blocks(4, 16 * S, 2 * S, P) + blocks(4, 32 * S, 2 * S, P), 12,
     12 * P, resized},
    {"downwards", 3, blocks(3, 0, -4 * S, P), 3, 3 * P, downwards},
    {"nested", 1, blocks(4, 0, 2 * S, P) + blocks(1, 32 * S, S, 2 * P), 5, 6 * P, nested},
    {"distributed", 1, blocks(4, S, 4 * S, P), 4, 4 * P, distributed},
    {"near", 1, blocks(4, 0, S, P - 4000), 1, 4 * P, near},
    {"small", 1, blocks(16, 0, S, 2048), 0, 0, small},
    {"large_and_small", 1, blocks(1, 0, S, 2 * P) + blocks(8, 4 * S, 4 * S, 2048), 1, 2 * P, large_and_small},
    {"many", 1, blocks(65, 0, 3 * S / 2, P), 1, 97 * P, many},
#if MPI_VERSION >= 4
    {"large_counts", 1, blocks(4, 0, 2 * S, P), 4, 4 * P, large_counts},
    {"large_slabs", 1, blocks(8, S, 4 * S, P), 8, 8 * P, large_slabs},
#endif
  };
  return all;
}

/// Memory in which only the blocks of a case are mapped; the case's buffer is the middle.
class Area {
 public:
  explicit Area(const Case& c) : case_(c) {
    // The memory begins at the start of a page: what is registered can be foretold.
    void* const got =
        ::mmap(nullptr, kArea + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begin_ = static_cast<char*>(got);
    begin_ += (kPage - reinterpret_cast<std::uintptr_t>(begin_) % kPage) % kPage;
    if (c.leases == 1 && c.blocks.size() > 16) return;  // registered with its gaps
    std::vector<bool> used(kArea / kPage);
    for (const Block& block : c.blocks) {
      const auto first = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(kMiddle) + block.offset);
      for (std::size_t at = first / kPage; at * kPage < first + block.bytes; ++at) used[at] = true;
    }
    for (std::size_t i = 0; i < used.size(); ++i)
      if (!used[i]) ::munmap(begin_ + i * kPage, kPage);
  }
  // Its memory stays: another mapping in its gaps could be unmapped with it.
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  char* buffer() const { return begin_ + kMiddle; }
  void fill(int rank, int what) {
    each([&](int* data, std::size_t at) { *data = element(rank, what, at); });
  }
  bool holds(int rank, int what) {
    bool right = true;
    each([&](const int* data, std::size_t at) { right = right && *data == element(rank, what, at); });
    return right;
  }

 private:
  template <class Visit>
  void each(Visit visit) {
    std::size_t at = 0;
    for (const Block& block : case_.blocks)
      for (std::size_t i = 0; i < block.bytes / sizeof(int); ++i)
        visit(reinterpret_cast<int*>(buffer() + block.offset) + i, at++);
  }
  const Case& case_;
  char* begin_;
};

struct Side {
  Area area;
  MPI_Datatype type;
  void* at;

  explicit Side(const Case& c)
      : area(c),
        type(c.make(reinterpret_cast<MPI_Aint>(area.buffer()))),
        at(c.absolute ? MPI_BOTTOM : area.buffer()) {
    MPI_Type_commit(&type);
  }
  ~Side() { MPI_Type_free(&type); }
};

void blocking(const Side& out, const Side& in, int count) {
  MPI_Sendrecv(out.at, count, out.type, other, 1, in.at, count, in.type, other, 1, kWorld, MPI_STATUS_IGNORE);
}
void nonblocking(const Side& out, const Side& in, int count) {
  MPI_Request requests[2];
  MPI_Irecv(in.at, count, in.type, other, 2, kWorld, &requests[0]);
  MPI_Isend(out.at, count, out.type, other, 2, kWorld, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}
void persistent(const Side& out, const Side& in, int count) {
  MPI_Request requests[2];
  MPI_Recv_init(in.at, count, in.type, other, 3, kWorld, &requests[0]);
  MPI_Send_init(out.at, count, out.type, other, 3, kWorld, &requests[1]);
  MPI_Startall(2, requests);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  MPI_Request_free(&requests[0]);
  MPI_Request_free(&requests[1]);
}
void of_one_type(const Side& out, const Side& in, int count) {
  int counts[2] = {}, offsets[2] = {};
  counts[other] = count;
  MPI_Alltoallv(out.at, counts, offsets, out.type, in.at, counts, offsets, in.type, kWorld);
}
void of_types(const Side& out, const Side& in, int count) {
  int counts[2] = {}, offsets[2] = {};
  counts[other] = count;
  MPI_Datatype out_types[] = {MPI_INT, MPI_INT}, in_types[] = {MPI_INT, MPI_INT};
  out_types[other] = out.type;
  in_types[other] = in.type;
  MPI_Alltoallw(out.at, counts, offsets, out_types, in.at, counts, offsets, in_types, kWorld);
}

using Exchange = void (*)(const Side&, const Side&, int);
constexpr Exchange kExchanges[] = {blocking, nonblocking, persistent, of_one_type, of_types};

void run(const Case& c) {
  Side out(c), in(c);
  int what = 0;
  for (const Exchange exchange : kExchanges) {
    out.area.fill(me, ++what);
    exchange(out, in, c.count);
    CHECK(in.area.holds(other, what));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> names(argv + 1, argv + argc);
  if (!names.empty() && names[0] == "--list") {
    for (const Case& c : cases())
      std::printf("%s %zu %zu\n", c.name, 2 * std::size(kExchanges) * c.leases, 2 * c.registered);
    return 0;
  }
  MPI_Init(&argc, &argv);
  me = world_rank();
  other = 1 - me;
  for (const Case& c : cases())
    if (names.empty() || std::find(names.begin(), names.end(), c.name) != names.end()) run(c);
  return finish();
}
