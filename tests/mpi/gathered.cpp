// The pieces of derived types (pinion/mpi_gather.h) carry MPI_Pack's bytes, and a plan over them carries them
// there and back. One rank.
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

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const MPI_Datatype basic[] = {MPI_CHAR,      MPI_INT,      MPI_DOUBLE,   MPI_DOUBLE_INT,
                                MPI_SHORT_INT, MPI_LONG_INT, MPI_FLOAT_INT};
  const Maker makers[] = {contiguous,       vector,        backwards,      hvector,   indexed,
                          hindexed,         indexed_block, hindexed_block, structure, subarray_c,
                          subarray_fortran, resized,       duplicate};
  for (MPI_Datatype type : basic) check(type, 5);
  for (MPI_Datatype of : {MPI_INT, MPI_SHORT_INT})
    for (const Maker outer : makers)
      for (const Maker inner : makers) {
        MPI_Datatype middle = inner(of), type = outer(middle);
        MPI_Type_commit(&type);
        for (const int count : {0, 1, 3}) check(type, count);
        MPI_Type_free(&middle);
        MPI_Type_free(&type);
      }
  const int sizes[] = {8}, distributions[] = {MPI_DISTRIBUTE_BLOCK}, arguments[] = {MPI_DISTRIBUTE_DFLT_DARG},
            processes[] = {1};
  MPI_Datatype distributed;
  MPI_Type_create_darray(1, 0, 1, sizes, distributions, arguments, processes, MPI_ORDER_C, MPI_INT,
                         &distributed);
  std::size_t count = 0;
  CHECK(pinion_mpi_pieces(nullptr, 1, distributed, nullptr, &count) == ENOTSUP);
  MPI_Type_free(&distributed);
  return finish();
}
