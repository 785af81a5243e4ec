// Derived types, absolute addresses and memory that comes and goes. Two ranks.
#include <sys/mman.h>

#include <cstddef>
#include <cstring>

#include "check.h"

namespace {

const MPI_Comm kWorld = MPI_COMM_WORLD;
int me, other;

void exchange(const void* out, int out_count, MPI_Datatype out_type, void* in, int in_count,
              MPI_Datatype in_type) {
  MPI_Sendrecv(out, out_count, out_type, other, 1, in, in_count, in_type, other, 1, kWorld,
               MPI_STATUS_IGNORE);
}

// Columns of a matrix: sent strided, received strided; the elements in between stay.
void columns() {
  constexpr int kRows = 700, kColumns = 90, kWide = 3;
  MPI_Datatype column;
  MPI_Type_vector(kRows, kWide, kColumns, MPI_INT, &column);
  MPI_Type_commit(&column);
  const auto out = message(kRows * kColumns, me, 1);
  std::vector<int> in(kRows * kColumns, -1);
  exchange(out.data() + 40, 1, column, in.data() + 20, 1, column);
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < kColumns; ++c) {
      const int at = row * kColumns + c;
      const bool received = c >= 20 && c < 20 + kWide;
      CHECK(in[static_cast<std::size_t>(at)] ==
            (received ? element(other, 1, static_cast<std::size_t>(at + 20)) : -1));
    }
  }
  MPI_Type_free(&column);
}

// A vector with a negative stride, and a type whose extent is negative: memory before the buffer's address.
void backwards() {
  constexpr int kCount = 20000;
  MPI_Datatype reversed;
  MPI_Type_vector(kCount, 1, -1, MPI_INT, &reversed);
  MPI_Type_commit(&reversed);
  const auto out = message(kCount, me, 2);
  std::vector<int> in(kCount);
  exchange(out.data() + kCount - 1, 1, reversed, in.data(), kCount, MPI_INT);
  for (std::size_t i = 0; i < kCount; ++i) CHECK(in[i] == element(other, 2, kCount - 1 - i));
  MPI_Type_free(&reversed);

  MPI_Datatype downwards;
  MPI_Type_create_resized(MPI_INT, 0, -static_cast<MPI_Aint>(sizeof(int)), &downwards);
  MPI_Type_commit(&downwards);
  in.assign(kCount, 0);
  exchange(out.data(), kCount, MPI_INT, in.data() + kCount - 1, kCount, downwards);
  for (std::size_t i = 0; i < kCount; ++i) CHECK(in[i] == element(other, 2, kCount - 1 - i));
  MPI_Type_free(&downwards);
}

// Data that begins behind the type's address, in elements further apart than they are long.
void offset_and_resized() {
  constexpr int kCount = 3000;
  struct Particle {
    double unused;
    int id[8];
    char name[8];
    double tail;
  };
  int lengths[] = {8, 8};
  MPI_Aint offsets[] = {offsetof(Particle, id), offsetof(Particle, name)};
  MPI_Datatype types[] = {MPI_INT, MPI_CHAR}, plain, particle;
  MPI_Type_create_struct(2, lengths, offsets, types, &plain);
  MPI_Type_create_resized(plain, 0, sizeof(Particle), &particle);
  MPI_Type_commit(&particle);
  std::vector<Particle> out(kCount), in(kCount);
  for (int i = 0; i < kCount; ++i) {
    auto& p = out[static_cast<std::size_t>(i)];
    fill(p.id, 8, me, i);
    std::memcpy(p.name, "pinion", 7);
    in[static_cast<std::size_t>(i)].tail = 0.5;
  }
  exchange(out.data(), kCount, particle, in.data(), kCount, particle);
  for (int i = 0; i < kCount; ++i) {
    const auto& p = in[static_cast<std::size_t>(i)];
    CHECK(holds(p.id, 8, other, i) && std::strcmp(p.name, "pinion") == 0 && p.tail == 0.5);
  }
  MPI_Type_free(&plain);
  MPI_Type_free(&particle);
}

// MPI_BOTTOM: the type carries addresses, here of two pieces with half of the address space between them.
void absolute() {
  constexpr int kHalf = 9000;
  int on_stack[kHalf];
  std::vector<int> on_heap(kHalf), in(2 * kHalf);
  fill(on_stack, kHalf, me, 4);
  fill(on_heap.data(), kHalf, me, 5);
  int lengths[] = {kHalf, kHalf};
  MPI_Aint addresses[2];
  MPI_Get_address(on_stack, &addresses[0]);
  MPI_Get_address(on_heap.data(), &addresses[1]);
  MPI_Datatype pieces, whole;
  MPI_Type_create_hindexed(2, lengths, addresses, MPI_INT, &pieces);
  MPI_Type_commit(&pieces);
  MPI_Aint address;
  MPI_Get_address(in.data(), &address);
  MPI_Type_create_hindexed_block(1, 2 * kHalf, &address, MPI_INT, &whole);
  MPI_Type_commit(&whole);
  exchange(MPI_BOTTOM, 1, pieces, MPI_BOTTOM, 1, whole);
  CHECK(holds(in.data(), kHalf, other, 4) && holds(in.data() + kHalf, kHalf, other, 5));
  std::memset(on_stack, 0, sizeof on_stack);
  std::fill(on_heap.begin(), on_heap.end(), 0);
  exchange(MPI_BOTTOM, 1, whole, MPI_BOTTOM, 1, pieces);
  CHECK(holds(on_stack, kHalf, me, 4) && holds(on_heap.data(), kHalf, me, 5));
  MPI_Type_free(&pieces);
  MPI_Type_free(&whole);
}

// Buffers from malloc that are freed at once, grow, and lie at addresses used before; and a mapping that is
// replaced in place.
void memory_comes_and_goes() {
  for (int round = 0; round < 8; ++round) {
    const std::size_t count = 5000u << (round % 4 * 2);  // 20 KB: heap, to 1.3 MB: mapped
    auto* out = static_cast<int*>(std::malloc(count * sizeof(int)));
    auto* in = static_cast<int*>(std::malloc(count / 2 * sizeof(int)));
    fill(out, count, me, round);
    exchange(out, static_cast<int>(count / 2), MPI_INT, in, static_cast<int>(count / 2), MPI_INT);
    CHECK(holds(in, count / 2, other, round));
    in = static_cast<int*>(std::realloc(in, count * sizeof(int)));
    CHECK(holds(in, count / 2, other, round));
    exchange(out, static_cast<int>(count), MPI_INT, in, static_cast<int>(count), MPI_INT);
    CHECK(holds(in, count, other, round));
    std::free(out);
    std::free(in);
  }
  constexpr std::size_t kCount = 1 << 16, kBytes = kCount * sizeof(int);
  void* place = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto out = message(kCount, me, 9);
  for (int round = 0; round < 5; ++round) {
    auto* in = static_cast<int*>(place);
    CHECK(in[0] == 0 && in[kCount - 1] == 0);
    exchange(out.data(), kCount, MPI_INT, in, kCount, MPI_INT);
    CHECK(holds(in, kCount, other, 9));
    ::mmap(place, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  ::munmap(place, kBytes);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  other = 1 - me;
  for (int round = 0; round < 3; ++round) {
    columns();
    backwards();
    offset_and_resized();
    absolute();
    memory_comes_and_goes();
  }
  return finish();
}
