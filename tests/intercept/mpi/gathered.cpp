// The pieces of derived types (pinion/mpi_gather.h) carry MPI_Pack's bytes, and a plan over them carries them
// there and back. One rank.
//
//     mpi_gathered           the checks
//     mpi_gathered --times   what decoding an indexed type costs, beside making it
#include <algorithm>
#include <cstring>

#include "check.h"
#include "pinion/mpi_gather.h"

namespace {

constexpr std::size_t kBytes = 1 << 20, kMiddle = kBytes / 2;  // types reach to both sides

/// Types are made of each other; freed by their makers.
using Maker = MPI_Datatype (*)(MPI_Datatype of);

MPI_Datatype contiguous(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_contiguous(3, of, &type);
  return type;
}
MPI_Datatype vector(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_vector(3, 2, 4, of, &type);
  return type;
}
MPI_Datatype backwards(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_vector(3, 2, -3, of, &type);
  return type;
}
MPI_Datatype hvector(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_create_hvector(2, 2, 1000, of, &type);
  return type;
}
MPI_Datatype indexed(MPI_Datatype of) {
  const int lengths[] = {2, 0, 1, 3}, offsets[] = {7, 1, 0, 1};  // out of order, one empty
  MPI_Datatype type;
  MPI_Type_indexed(4, lengths, offsets, of, &type);
  return type;
}
MPI_Datatype hindexed(MPI_Datatype of) {
  const int lengths[] = {1, 2};
  const MPI_Aint offsets[] = {1200, 8};
  MPI_Datatype type;
  MPI_Type_create_hindexed(2, lengths, offsets, of, &type);
  return type;
}
MPI_Datatype indexed_block(MPI_Datatype of) {
  const int offsets[] = {5, 0, 2};
  MPI_Datatype type;
  MPI_Type_create_indexed_block(3, 2, offsets, of, &type);
  return type;
}
MPI_Datatype hindexed_block(MPI_Datatype of) {
  const MPI_Aint offsets[] = {0, 1500};
  MPI_Datatype type;
  MPI_Type_create_hindexed_block(2, 2, offsets, of, &type);
  return type;
}
MPI_Datatype structure(MPI_Datatype of) {
  const int lengths[] = {1, 2, 3};
  const MPI_Aint offsets[] = {0, 16, 1600};
  const MPI_Datatype types[] = {MPI_CHAR, of, MPI_SHORT};
  MPI_Datatype type;
  MPI_Type_create_struct(3, lengths, offsets, types, &type);
  return type;
}
MPI_Datatype subarray(MPI_Datatype of, int order) {
  const int sizes[] = {3, 4, 5}, subsizes[] = {2, 3, 2}, starts[] = {1, 0, 2};
  MPI_Datatype type;
  MPI_Type_create_subarray(3, sizes, subsizes, starts, order, of, &type);
  return type;
}
MPI_Datatype subarray_c(MPI_Datatype of) { return subarray(of, MPI_ORDER_C); }
MPI_Datatype subarray_fortran(MPI_Datatype of) { return subarray(of, MPI_ORDER_FORTRAN); }
MPI_Datatype resized(MPI_Datatype of) {
  MPI_Aint lower = 0, extent = 0;
  MPI_Type_get_extent(of, &lower, &extent);
  MPI_Datatype type;
  MPI_Type_create_resized(of, lower, extent + 24, &type);
  return type;
}
MPI_Datatype duplicate(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_dup(of, &type);
  return type;
}

/// The third of four processes has this part, in blocks, cyclic, and whole.
MPI_Datatype distributed(MPI_Datatype of, int order, int rank) {
  const int sizes[] = {5, 7, 2}, processes[] = {2, 2, 1},
            how[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE},
            arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, 2, MPI_DISTRIBUTE_DFLT_DARG};
  MPI_Datatype type;
  MPI_Type_create_darray(4, rank, 3, sizes, how, arguments, processes, order, of, &type);
  return type;
}
MPI_Datatype distributed_c(MPI_Datatype of) { return distributed(of, MPI_ORDER_C, 2); }
MPI_Datatype distributed_fortran(MPI_Datatype of) { return distributed(of, MPI_ORDER_FORTRAN, 1); }
#if MPI_VERSION >= 4
// Made with counts beyond int.
MPI_Datatype large_hvector(MPI_Datatype of) {
  MPI_Datatype type;
  MPI_Type_create_hvector_c(2, 2, 1000, of, &type);
  return type;
}
MPI_Datatype large_structure(MPI_Datatype of) {
  const MPI_Count lengths[] = {1, 2}, offsets[] = {0, 16};
  const MPI_Datatype types[] = {MPI_CHAR, of};
  MPI_Datatype type;
  MPI_Type_create_struct_c(2, lengths, offsets, types, &type);
  return type;
}
MPI_Datatype large_subarray(MPI_Datatype of) {
  const MPI_Count sizes[] = {3, 4}, subsizes[] = {2, 3}, starts[] = {1, 0};
  MPI_Datatype type;
  MPI_Type_create_subarray_c(2, sizes, subsizes, starts, MPI_ORDER_FORTRAN, of, &type);
  return type;
}
MPI_Datatype large_distributed(MPI_Datatype of) {
  const MPI_Count sizes[] = {5, 6};
  const int processes[] = {2, 2}, how[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK},
            arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
  MPI_Datatype type;
  MPI_Type_create_darray_c(4, 3, 2, sizes, how, arguments, processes, MPI_ORDER_C, of, &type);
  return type;
}
#endif

using Bytes = std::vector<char>;

Bytes packed_by_mpi(const char* at, int count, MPI_Datatype type) {
  int bytes = 0, position = 0;
  MPI_Pack_size(count, type, MPI_COMM_SELF, &bytes);
  Bytes packed(static_cast<std::size_t>(bytes) + 1);  // MPI refuses a null pointer
  MPI_Pack(at, count, type, packed.data(), bytes, &position, MPI_COMM_SELF);
  packed.resize(static_cast<std::size_t>(position));
  return packed;
}

Bytes contents(const std::vector<pinion_gather_element>& elements) {
  Bytes bytes;
  for (const pinion_gather_element& element : elements) {
    const auto* const at = static_cast<const char*>(element.address);
    bytes.insert(bytes.end(), at, at + element.bytes);
  }
  return bytes;
}

bool overlap(std::vector<pinion_range> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const pinion_range& a, const pinion_range& b) { return a.address < b.address; });
  for (std::size_t i = 1; i < pieces.size(); ++i)
    if (static_cast<const char*>(pieces[i - 1].address) + pieces[i - 1].bytes > pieces[i].address)
      return true;
  return false;
}

/// Elements whose cost is that of copying some 40 bytes: plans are mixtures.
pinion_gather_costs costs() {
  pinion_gather_costs costs{};
  costs.size = sizeof costs;
  costs.max_elements = 16;
  costs.request_ns = 100;
  for (std::size_t i = 0; i < 8; ++i) costs.elements_ns[i] = 40.0 * static_cast<double>((2u << i) - 1);
  costs.copied_byte_ns = 1;
  return costs;
}

void check(MPI_Datatype type, int count) {
  static Bytes memory = [] {
    Bytes bytes(kBytes);
    for (std::size_t i = 0; i < kBytes; ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    return bytes;
  }();
  char* const at = memory.data() + kMiddle;
  const Bytes expected = packed_by_mpi(at, count, type);

  std::size_t pieces_count = 0;
  const int needs = pinion_mpi_pieces(at, count, type, nullptr, &pieces_count);
  CHECK(needs == (expected.empty() ? 0 : ENOSPC));
  if (expected.empty()) return;
  std::vector<pinion_range> pieces(pieces_count);
  CHECK(pinion_mpi_pieces(at, count, type, pieces.data(), &pieces_count) == 0);

  Bytes buffer(1 << 16);
  const pinion_gather_costs device = costs();
  std::vector<pinion_gather_element> elements(pieces_count);
  std::size_t elements_count = elements.size();
  CHECK(pinion_gather_plan(&device, pieces.data(), pieces_count, buffer.data(), buffer.size(),
                           elements.data(), &elements_count) == 0);
  elements.resize(elements_count);
  pinion_gather_pack(pieces.data(), elements.data(), elements.size());
  CHECK(contents(elements) == expected);

  // The bytes of a get, others in their place: MPI leaves open where those of pieces that overlap go.
  if (overlap(pieces)) return;
  Bytes brought = expected, unpacked = memory;
  for (char& byte : brought) byte = static_cast<char>(~byte);
  int position = 0;
  MPI_Unpack(brought.data(), static_cast<int>(brought.size()), &position, unpacked.data() + kMiddle, count,
             type, MPI_COMM_SELF);
  const char* from = brought.data();
  for (const pinion_gather_element& element : elements) {
    std::memcpy(const_cast<void*>(element.address), from, element.bytes);
    from += element.bytes;
  }
  pinion_gather_unpack(pieces.data(), elements.data(), elements.size());
  CHECK(memory == unpacked);
}

/// Joined over gaps, the pieces cover the same memory, from the same first byte to the same last one.
void check_joined(MPI_Datatype type, MPI_Aint gap) {
  pinion_mpi_bounds exactly = PINION_MPI_UNBOUNDED, joining = {gap, 10000, 1000000};
  pinion_mpi_list exact, joined;
  CHECK(pinion_mpi_flatten(type, &exactly, &exact) == 0 && pinion_mpi_flatten(type, &joining, &joined) == 0);
  MPI_Aint data = 0, first = kBytes, last = -static_cast<MPI_Aint>(kBytes);
  for (std::size_t i = 0; i < joined.count; ++i) {
    const pinion_mpi_piece& piece = joined.pieces[i];
    CHECK(piece.data > 0 && piece.data <= piece.bytes);
    data += piece.data;
    first = std::min(first, piece.offset);
    last = std::max(last, piece.offset + piece.bytes);
  }
  MPI_Aint lower = 0, extent = 0;
  MPI_Type_get_true_extent(type, &lower, &extent);
  CHECK(joined.count == 0 || (first == lower && last == lower + extent));
  int size = 0;
  MPI_Type_size(type, &size);
  CHECK(data <= size);
  for (std::size_t i = 0; i < exact.count; ++i) {
    const pinion_mpi_piece& piece = exact.pieces[i];
    CHECK(piece.data == piece.bytes);
    CHECK(std::any_of(joined.pieces, joined.pieces + joined.count, [&](const pinion_mpi_piece& range) {
      return range.offset <= piece.offset && piece.offset + piece.bytes <= range.offset + range.bytes;
    }));
  }
  std::free(exact.pieces);
  std::free(joined.pieces);
}

/// Bounds of a list and of its decoding hold, and a type of many elements near each other needs no walk.
void check_bounds() {
  MPI_Datatype apart, indexed, near;
  MPI_Type_vector(65, 1, 2000, MPI_INT, &apart);
  MPI_Type_vector(1 << 20, 3, 50, MPI_INT, &near);
  const std::vector<int> offsets(1000, 7);
  MPI_Type_create_indexed_block(1000, 1, offsets.data(), MPI_INT, &indexed);
  const auto decoded = [](MPI_Datatype type, std::size_t pieces, std::size_t steps, std::size_t* count) {
    pinion_mpi_bounds bounds = {4095, pieces, steps};
    pinion_mpi_list list;
    const int error = pinion_mpi_flatten(type, &bounds, &list);
    *count = list.count;
    std::free(list.pieces);
    return error;
  };
  std::size_t count = 0;
  CHECK(decoded(apart, 64, 1000, &count) == ENOSPC && count == 64);
  CHECK(decoded(apart, 65, 1000, &count) == 0 && count == 65);
  CHECK(decoded(indexed, 64, 1000, &count) == ENOSPC);
  CHECK(decoded(indexed, 64, 3000, &count) == 0 && count == 1);
  CHECK(decoded(near, 64, 20, &count) == 0 && count == 1);
  for (MPI_Datatype* type : {&apart, &indexed, &near}) MPI_Type_free(type);
}

/// Decodes as the MPI front does; the best of several rounds.
void print_times(int blocks) {
  std::vector<int> offsets, lengths;
  for (int i = 0; i < blocks; ++i) {
    offsets.push_back(40 * i);
    lengths.push_back(1 + i % 3);
  }
  double made = 1, decoded = 1;
  for (int round = 0; round < 15; ++round) {
    const double begin = MPI_Wtime();
    MPI_Datatype type;
    MPI_Type_indexed(blocks, lengths.data(), offsets.data(), MPI_INT, &type);
    MPI_Type_commit(&type);
    const double middle = MPI_Wtime();
    pinion_mpi_bounds bounds = {4095, 64, 100000};
    pinion_mpi_list list;
    CHECK(pinion_mpi_flatten(type, &bounds, &list) == 0);
    decoded = std::min(decoded, MPI_Wtime() - middle);
    made = std::min(made, middle - begin);
    std::free(list.pieces);
    MPI_Type_free(&type);
  }
  std::printf("%d blocks: made in %.1f us, decoded in %.1f us\n", blocks, 1e6 * made, 1e6 * decoded);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc > 1 && std::strcmp(argv[1], "--times") == 0) {
    for (const int blocks : {50, 500, 5000, 30000}) print_times(blocks);
    return finish();
  }
  const MPI_Datatype basic[] = {MPI_CHAR,      MPI_INT,      MPI_DOUBLE,   MPI_DOUBLE_INT,
                                MPI_SHORT_INT, MPI_LONG_INT, MPI_FLOAT_INT};
  const Maker makers[] = {
    contiguous,
    vector,
    backwards,
    hvector,
    indexed,
    hindexed,
    indexed_block,
    hindexed_block,
    structure,
    subarray_c,
    subarray_fortran,
    resized,
    duplicate,
    distributed_c,
    distributed_fortran,
#if MPI_VERSION >= 4
    large_hvector,
    large_structure,
    large_subarray,
    large_distributed,
#endif
  };
  for (MPI_Datatype type : basic) check(type, 5);
  for (MPI_Datatype of : {MPI_INT, MPI_SHORT_INT})
    for (const Maker outer : makers)
      for (const Maker inner : makers) {
        MPI_Datatype middle = inner(of), type = outer(middle);
        MPI_Type_commit(&type);
        for (const int count : {0, 1, 3}) check(type, count);
        for (const MPI_Aint gap : {1, 30, 5000}) check_joined(type, gap);
        MPI_Type_free(&middle);
        MPI_Type_free(&type);
      }
  check_bounds();
  return finish();
}
