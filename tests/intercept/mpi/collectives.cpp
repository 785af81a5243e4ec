// Every collective in all its forms, with each root, in place wherever MPI allows it, with gaps and empty
// parts; and between two groups. Any number of ranks from 2 on; three make the groups unequal.
#include <initializer_list>

#include "forms.h"

namespace {

constexpr int kCount = 6007;  // 24 KB a rank
const MPI_Comm kWorld = MPI_COMM_WORLD;
// MPICH 4.0 reads from MPI_IN_PLACE when a root other than 0 reduces. It exchanges in place with types of
// their own only in the blocking form.
#ifdef MPICH_NUMVERSION
constexpr bool kIsMpich = true;
#else
constexpr bool kIsMpich = false;
#endif
int me, ranks;

std::size_t at(int i) { return static_cast<std::size_t>(i) * kCount; }
std::size_t total() { return at(ranks); }

/// Blocks of different lengths (rank 1's is empty) with gaps between them, in no order.
struct Blocks {
  std::vector<count_t> counts;
  std::vector<offset_t> displacements;
  int extent = 0;
  explicit Blocks(int n, int gap = 13) {
    for (int i = 0; i < n; ++i) {
      counts.push_back(i == 1 ? 0 : kCount - 100 * i);
      displacements.push_back((n - 1 - i) * (kCount + gap));
    }
    extent = n * (kCount + gap);
  }
  int* in(std::vector<int>& data, int i) const {
    return data.data() + displacements[static_cast<std::size_t>(i)];
  }
  std::size_t count(int i) const { return static_cast<std::size_t>(counts[static_cast<std::size_t>(i)]); }
};

void broadcast(int root) {
  std::vector<int> data(kCount);
  if (me == root) fill(data.data(), kCount, root, 1);
  COLLECTIVE(Bcast, bcast, data.data(), kCount, MPI_INT, root, kWorld);
  CHECK(holds(data, root, 1));
}

void gather(int root, bool in_place) {
  const auto own = message(kCount, me, 2);
  std::vector<int> all(me == root ? total() : 0);
  const bool here = me == root && in_place;
  if (here) fill(&all[at(me)], kCount, me, 2);
  COLLECTIVE(Gather, gather, here ? MPI_IN_PLACE : own.data(), kCount, MPI_INT, all.data(), kCount, MPI_INT,
             root, kWorld);
  for (int i = 0; me == root && i < ranks; ++i) CHECK(holds(&all[at(i)], kCount, i, 2));

  const Blocks blocks(ranks);
  std::vector<int> parts(me == root ? static_cast<std::size_t>(blocks.extent) : 0, -1);
  if (here) fill(blocks.in(parts, me), blocks.count(me), me, 2);
  COLLECTIVE(Gatherv, gatherv, here ? MPI_IN_PLACE : own.data(), static_cast<int>(blocks.count(me)), MPI_INT,
             parts.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT, root, kWorld);
  for (int i = 0; me == root && i < ranks; ++i) {
    CHECK(holds(blocks.in(parts, i), blocks.count(i), i, 2));
    CHECK(blocks.in(parts, i)[blocks.count(i)] == -1);
  }
}

void scatter(int root, bool in_place) {
  std::vector<int> own(kCount), all(me == root ? total() : 0);
  for (int i = 0; me == root && i < ranks; ++i) fill(&all[at(i)], kCount, i, 3);
  const bool here = me == root && in_place;
  COLLECTIVE(Scatter, scatter, all.data(), kCount, MPI_INT, here ? MPI_IN_PLACE : own.data(), kCount, MPI_INT,
             root, kWorld);
  CHECK(here || holds(own, me, 3));

  const Blocks blocks(ranks);
  std::vector<int> parts(me == root ? static_cast<std::size_t>(blocks.extent) : 0);
  for (int i = 0; me == root && i < ranks; ++i) fill(blocks.in(parts, i), blocks.count(i), i, 4);
  own.assign(kCount, -1);
  COLLECTIVE(Scatterv, scatterv, parts.data(), blocks.counts.data(), blocks.displacements.data(), MPI_INT,
             here ? MPI_IN_PLACE : own.data(), static_cast<int>(blocks.count(me)), MPI_INT, root, kWorld);
  CHECK(here || holds(own.data(), blocks.count(me), me, 4));
}

void allgather(bool in_place) {
  const auto own = message(kCount, me, 5);
  std::vector<int> all(total());
  if (in_place) fill(&all[at(me)], kCount, me, 5);
  COLLECTIVE(Allgather, allgather, in_place ? MPI_IN_PLACE : own.data(), kCount, MPI_INT, all.data(), kCount,
             MPI_INT, kWorld);
  for (int i = 0; i < ranks; ++i) CHECK(holds(&all[at(i)], kCount, i, 5));

  for (const int gap : {13, 3 * kCount}) {
    const Blocks blocks(ranks, gap);
    std::vector<int> parts(static_cast<std::size_t>(blocks.extent), -1);
    if (in_place) fill(blocks.in(parts, me), blocks.count(me), me, 5);
    COLLECTIVE(Allgatherv, allgatherv, in_place ? MPI_IN_PLACE : own.data(),
               static_cast<int>(blocks.count(me)), MPI_INT, parts.data(), blocks.counts.data(),
               blocks.displacements.data(), MPI_INT, kWorld);
    for (int i = 0; i < ranks; ++i) CHECK(holds(blocks.in(parts, i), blocks.count(i), i, 5));
  }
}

/// The value that rank `from` has for rank `to`.
int pair(int from, int to) { return 100 + from * 50 + to; }

void alltoall(bool in_place) {
  std::vector<int> out(total()), in(total());
  std::vector<int>& source = in_place ? in : out;
  for (int i = 0; i < ranks; ++i) fill(&source[at(i)], kCount, me, pair(me, i));
  COLLECTIVE(Alltoall, alltoall, in_place ? MPI_IN_PLACE : out.data(), kCount, MPI_INT, in.data(), kCount,
             MPI_INT, kWorld);
  for (int i = 0; i < ranks; ++i) CHECK(holds(&in[at(i)], kCount, i, pair(i, me)));

  // Counts must agree for each pair, and in place also between the two directions.
  std::vector<count_t> counts;
  std::vector<offset_t> displacements;
  for (int i = 0; i < ranks; ++i) {
    counts.push_back(me + i == 1 ? 0 : kCount - 10 * (me + i));
    displacements.push_back((ranks - 1 - i) * kCount);
  }
  in.assign(total(), -1);
  for (int i = 0; i < ranks; ++i) {
    const auto s = static_cast<std::size_t>(i);
    fill(&source[static_cast<std::size_t>(displacements[s])], static_cast<std::size_t>(counts[s]), me,
         pair(me, i));
  }
  COLLECTIVE(Alltoallv, alltoallv, in_place ? MPI_IN_PLACE : out.data(), counts.data(), displacements.data(),
             MPI_INT, in.data(), counts.data(), displacements.data(), MPI_INT, kWorld);
  for (int i = 0; i < ranks; ++i) {
    const auto s = static_cast<std::size_t>(i);
    CHECK(holds(&in[static_cast<std::size_t>(displacements[s])], static_cast<std::size_t>(counts[s]), i,
                pair(i, me)));
  }
}

// Each pair with a type of its own; displacements in bytes.
void alltoallw(bool in_place) {
  std::vector<int> out(total()), in(total());
  std::vector<int>& source = in_place ? in : out;
  std::vector<count_t> counts;
  std::vector<offset_t> displacements;
  std::vector<MPI_Datatype> types(static_cast<std::size_t>(ranks));
  for (int i = 0; i < ranks; ++i) {
    const int width = 1 + (me + i) % 3;
    MPI_Type_contiguous(width, MPI_INT, &types[static_cast<std::size_t>(i)]);
    MPI_Type_commit(&types[static_cast<std::size_t>(i)]);
    counts.push_back(kCount / width - (me + i));
    displacements.push_back(static_cast<offset_t>(at(ranks - 1 - i) * sizeof(int)));
    fill(&source[at(ranks - 1 - i)], kCount, me, pair(me, i));
  }
  COLLECTIVE(Alltoallw, alltoallw, in_place ? MPI_IN_PLACE : out.data(), counts.data(), displacements.data(),
             types.data(), in.data(), counts.data(), displacements.data(), types.data(), kWorld);
  for (int i = 0; i < ranks; ++i) {
    const int width = 1 + (me + i) % 3;
    CHECK(holds(&in[at(ranks - 1 - i)], static_cast<std::size_t>(counts[static_cast<std::size_t>(i)] * width),
                i, pair(i, me)));
    MPI_Type_free(&types[static_cast<std::size_t>(i)]);
  }
}

/// The sum over ranks `from` up to `to` (not itself) of element i of message `what`; wraps as MPI_SUM of
/// unsigned does.
unsigned sum(int what, std::size_t i, int from, int to) {
  unsigned s = 0;
  for (int rank = from; rank < to; ++rank) s += static_cast<unsigned>(element(rank, what, i));
  return s;
}

std::vector<unsigned> numbers(std::size_t count, int rank, int what) {
  const auto data = message(count, rank, what);
  return {data.begin(), data.end()};
}

bool sums(const unsigned* data, std::size_t count, int what, std::size_t offset, int from, int to) {
  for (std::size_t i = 0; i < count; ++i)
    if (data[i] != sum(what, offset + i, from, to)) return false;
  return true;
}

void reduce(int root, bool in_place) {
  const auto own = numbers(kCount, me, 6);
  const bool here = me == root && in_place;
  // MPICH 4.0 writes into the receive buffer of others than the root too.
  std::vector<unsigned> result = here ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Reduce, reduce, here ? MPI_IN_PLACE : own.data(), result.data(), kCount, MPI_UNSIGNED, MPI_SUM,
             root, kWorld);
  CHECK(me != root || sums(result.data(), kCount, 6, 0, 0, ranks));
}

void allreduce(bool in_place) {
  const auto own = numbers(kCount, me, 7);
  std::vector<unsigned> result = in_place ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Allreduce, allreduce, in_place ? MPI_IN_PLACE : own.data(), result.data(), kCount, MPI_UNSIGNED,
             MPI_SUM, kWorld);
  CHECK(sums(result.data(), kCount, 7, 0, 0, ranks));
  result = in_place ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Scan, scan, in_place ? MPI_IN_PLACE : own.data(), result.data(), kCount, MPI_UNSIGNED, MPI_SUM,
             kWorld);
  CHECK(sums(result.data(), kCount, 7, 0, 0, me + 1));
  result = in_place ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Exscan, exscan, in_place ? MPI_IN_PLACE : own.data(), result.data(), kCount, MPI_UNSIGNED,
             MPI_SUM, kWorld);
  CHECK(me == 0 || sums(result.data(), kCount, 7, 0, 0, me));
}

void reduce_scatter(bool in_place) {
  const auto own = numbers(total(), me, 8);
  std::vector<unsigned> result = in_place ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, in_place ? MPI_IN_PLACE : own.data(), result.data(),
             kCount, MPI_UNSIGNED, MPI_SUM, kWorld);
  CHECK(sums(result.data(), kCount, 8, at(me), 0, ranks));

  const Blocks blocks(ranks);
  std::size_t offset = 0;
  for (int i = 0; i < me; ++i) offset += blocks.count(i);
  result = in_place ? own : std::vector<unsigned>(kCount);
  COLLECTIVE(Reduce_scatter, reduce_scatter, in_place ? MPI_IN_PLACE : own.data(), result.data(),
             blocks.counts.data(), MPI_UNSIGNED, MPI_SUM, kWorld);
  CHECK(sums(result.data(), blocks.count(me), 8, offset, 0, ranks));
}

// All counts are zero.
void empty() {
  std::vector<count_t> zeros(static_cast<std::size_t>(ranks));
  std::vector<offset_t> no_offsets(static_cast<std::size_t>(ranks));
  int none = 0, nothing = 0;
  COLLECTIVE(Bcast, bcast, nullptr, 0, MPI_INT, 0, kWorld);
  COLLECTIVE(Alltoall, alltoall, &none, 0, MPI_INT, &nothing, 0, MPI_INT, kWorld);
  COLLECTIVE(Alltoallv, alltoallv, &none, zeros.data(), no_offsets.data(), MPI_INT, &nothing, zeros.data(),
             no_offsets.data(), MPI_INT, kWorld);
  COLLECTIVE(Allgatherv, allgatherv, &none, 0, MPI_INT, &nothing, zeros.data(), no_offsets.data(), MPI_INT,
             kWorld);
}

// Two groups: rank 0 alone, and the others.
void between_groups() {
  const bool alone = me == 0;
  const int theirs = alone ? ranks - 1 : 1, mine = alone ? 1 : ranks - 1;
  const int first_of_theirs = alone ? 1 : 0, first_of_mine = alone ? 0 : 1;
  MPI_Comm group, inter;
  MPI_Comm_split(kWorld, alone, me, &group);
  MPI_Intercomm_create(group, 0, kWorld, first_of_theirs, 17, &inter);

  // The last rank of all sends to rank 0; the others of its group take part as bystanders.
  const int root = alone ? theirs - 1 : me == ranks - 1 ? MPI_ROOT : MPI_PROC_NULL;
  std::vector<int> data(kCount, -1);
  if (root == MPI_ROOT) fill(data.data(), kCount, me, 1);
  COLLECTIVE(Bcast, bcast, data.data(), kCount, MPI_INT, root, inter);
  CHECK(alone || root == MPI_ROOT ? holds(data, ranks - 1, 1) : data[0] == -1);

  // To rank 0 from all others.
  const int to = alone ? MPI_ROOT : 0;
  const auto own = message(kCount, me, 2);
  std::vector<int> all(at(theirs));
  COLLECTIVE(Gather, gather, own.data(), kCount, MPI_INT, all.data(), kCount, MPI_INT, to, inter);
  for (int i = 0; alone && i < theirs; ++i) CHECK(holds(&all[at(i)], kCount, first_of_theirs + i, 2));
  std::vector<unsigned> numbers_in(kCount);
  const auto numbers_out = numbers(kCount, me, 3);
  COLLECTIVE(Reduce, reduce, numbers_out.data(), numbers_in.data(), kCount, MPI_UNSIGNED, MPI_SUM, to, inter);
  CHECK(!alone || sums(numbers_in.data(), kCount, 3, 0, 1, ranks));

  all.assign(at(theirs), 0);
  COLLECTIVE(Allgather, allgather, own.data(), kCount, MPI_INT, all.data(), kCount, MPI_INT, inter);
  for (int i = 0; i < theirs; ++i) CHECK(holds(&all[at(i)], kCount, first_of_theirs + i, 2));
  std::vector<int> out(at(theirs));
  for (int i = 0; i < theirs; ++i) fill(&out[at(i)], kCount, me, pair(me, first_of_theirs + i));
  COLLECTIVE(Alltoall, alltoall, out.data(), kCount, MPI_INT, all.data(), kCount, MPI_INT, inter);
  for (int i = 0; i < theirs; ++i)
    CHECK(holds(&all[at(i)], kCount, first_of_theirs + i, pair(first_of_theirs + i, me)));

  // Both sides reduce as many elements in all; each side's result is cut by its own group.
  const int whole = kCount * (ranks - 1);
  const std::vector<count_t> counts(static_cast<std::size_t>(mine), whole / mine);
  const auto source = numbers(static_cast<std::size_t>(whole), me, 4);
  std::vector<unsigned> part(static_cast<std::size_t>(whole / mine));
  COLLECTIVE(Reduce_scatter, reduce_scatter, source.data(), part.data(), counts.data(), MPI_UNSIGNED, MPI_SUM,
             inter);
  const auto offset = static_cast<std::size_t>((me - first_of_mine) * (whole / mine));
  CHECK(sums(part.data(), part.size(), 4, offset, first_of_theirs, first_of_theirs + theirs));
  MPI_Comm_free(&inter);
  MPI_Comm_free(&group);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  ranks = world_size();
  for (const Form form : kForms) {
    g_form = form;
    for (const bool in_place : {false, true}) {
      for (int root = 0; root < ranks; ++root) {
        broadcast(root);
        gather(root, in_place);
        scatter(root, in_place);
        reduce(root, in_place && !(kIsMpich && root != 0));
      }
      allgather(in_place);
      alltoall(in_place);
      alltoallw(in_place && !(kIsMpich && form != Form::blocking));
      allreduce(in_place);
      reduce_scatter(in_place);
    }
    empty();
    between_groups();
  }
  return finish();
}
