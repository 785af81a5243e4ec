// One-sided communication: every kind of window, every operation, every way to know that it is complete. Two
// ranks.
#include <cstring>

#include "forms.h"

namespace {

constexpr int kCount =
    12288;  // 48 KB; whole pages, for MPICH 4.0 misplaces windows of others that it allocates
constexpr MPI_Aint kBytes = kCount * sizeof(int);
const MPI_Comm kWorld = MPI_COMM_WORLD;
int me, other;

/// The memory that a window offers: 2 * kCount ints.
struct Window {
  MPI_Win win;
  int* memory;
};
using Epoch = void (*)(MPI_Win, void (*)(MPI_Win));

std::vector<int> origin, result, ones;

// ---- epochs: how the operations in between are begun and completed ----

void fence(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Win_fence(0, win);
  operations(win);
  MPI_Win_fence(0, win);
}
void lock(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win);
  operations(win);
  MPI_Win_unlock(other, win);
  MPI_Barrier(kWorld);
}
void lock_all(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Win_lock_all(0, win);
  operations(win);
  MPI_Win_unlock_all(win);
  MPI_Barrier(kWorld);
}
void start_and_post(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Group world, group;
  MPI_Comm_group(kWorld, &world);
  MPI_Group_incl(world, 1, &other, &group);
  MPI_Win_post(group, 0, win);
  MPI_Win_start(group, 0, win);
  operations(win);
  MPI_Win_complete(win);
  MPI_Win_wait(win);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
}
template <int (*flush)(MPI_Win)>
void flush_all(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Win_lock_all(0, win);
  operations(win);
  flush(win);
  MPI_Win_flush_all(win);
  MPI_Barrier(kWorld);
  MPI_Win_unlock_all(win);
}
template <int (*flush)(int, MPI_Win)>
void flush_one(MPI_Win win, void (*operations)(MPI_Win)) {
  MPI_Win_lock_all(0, win);
  operations(win);
  flush(other, win);
  MPI_Win_flush(other, win);
  MPI_Barrier(kWorld);
  MPI_Win_unlock_all(win);
}
constexpr Epoch kEpochs[] = {fence,
                             lock,
                             lock_all,
                             start_and_post,
                             flush_all<MPI_Win_flush_all>,
                             flush_all<MPI_Win_flush_local_all>,
                             flush_one<MPI_Win_flush>,
                             flush_one<MPI_Win_flush_local>};

// ---- operations ----

MPI_Aint g_base[2];  ///< of each rank's memory: 0, or its address in dynamic windows
int g_unit;          ///< bytes in a unit of displacement

MPI_Aint place(int index) {
  return g_base[other] + static_cast<MPI_Aint>(index) * static_cast<MPI_Aint>(sizeof(int)) / g_unit;
}

void put(MPI_Win win) { MPI(Put)(origin.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, win); }
void get(MPI_Win win) {
  MPI(Get)(result.data(), kCount, MPI_INT, other, place(kCount), kCount, MPI_INT, win);
}
void accumulate(MPI_Win win) {
  MPI(Accumulate)(ones.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, MPI_SUM, win);
}
void get_accumulate(MPI_Win win) {
  MPI(Get_accumulate)
  (ones.data(), kCount, MPI_INT, result.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, MPI_SUM,
   win);
}
void get_by_no_op(MPI_Win win) {
  MPI(Get_accumulate)
  (nullptr, 0, MPI_INT, result.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, MPI_NO_OP, win);
}
void fetch_and_op(MPI_Win win) {
  MPI_Fetch_and_op(ones.data(), result.data(), MPI_INT, other, place(0), MPI_SUM, win);
}
int swap_to = 5, swap_from;
void compare_and_swap(MPI_Win win) {
  MPI_Compare_and_swap(&swap_to, &swap_from, result.data(), MPI_INT, other, place(0), win);
}

void all_operations(const Window& window, Epoch epoch) {
  int* const memory = window.memory;
  std::memset(memory, 0, kBytes);
  fill(memory + kCount, kCount, me, 2);
  fill(origin.data(), kCount, me, 1);
  MPI_Barrier(kWorld);
  epoch(window.win, put);
  epoch(window.win, get);
  CHECK(holds(memory, kCount, other, 1) && holds(result, other, 2));
  MPI_Barrier(kWorld);
  epoch(window.win, accumulate);
  for (int i = 0; i < kCount; ++i) CHECK(memory[i] == element(other, 1, static_cast<std::size_t>(i)) + 1);
  MPI_Barrier(kWorld);
  epoch(window.win, get_accumulate);
  for (int i = 0; i < kCount; ++i)
    CHECK(result[static_cast<std::size_t>(i)] == element(me, 1, static_cast<std::size_t>(i)) + 1);
  for (int i = 0; i < kCount; ++i) CHECK(memory[i] == element(other, 1, static_cast<std::size_t>(i)) + 2);
  MPI_Barrier(kWorld);
  epoch(window.win, get_by_no_op);
  for (int i = 0; i < kCount; ++i)
    CHECK(result[static_cast<std::size_t>(i)] == element(me, 1, static_cast<std::size_t>(i)) + 2);
  MPI_Barrier(kWorld);
  epoch(window.win, fetch_and_op);
  CHECK(result[0] == element(me, 1, 0) + 2 && memory[0] == element(other, 1, 0) + 3);
  swap_from = element(me, 1, 0) + 3;
  MPI_Barrier(kWorld);
  epoch(window.win, compare_and_swap);
  CHECK(result[0] == swap_from && memory[0] == 5);
  MPI_Barrier(kWorld);
}

// Operations with requests of their own, within one lock.
void with_requests(const Window& window) {
  std::memset(window.memory, 0, kBytes);
  fill(window.memory + kCount, kCount, me, 2);
  fill(origin.data(), kCount, me, 1);
  MPI_Barrier(kWorld);
  MPI_Win_lock_all(0, window.win);
  MPI_Request requests[2];
  MPI(Rput)(origin.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, window.win, &requests[0]);
  MPI(Rget)(result.data(), kCount, MPI_INT, other, place(kCount), kCount, MPI_INT, window.win, &requests[1]);
  MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
  CHECK(holds(result, other, 2));
  MPI_Win_flush_all(window.win);
  MPI(Raccumulate)
  (ones.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, MPI_SUM, window.win, &requests[0]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  MPI_Win_flush_all(window.win);
  MPI(Rget_accumulate)
  (ones.data(), kCount, MPI_INT, result.data(), kCount, MPI_INT, other, place(0), kCount, MPI_INT, MPI_SUM,
   window.win, &requests[0]);
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
  for (int i = 0; i < kCount; ++i)
    CHECK(result[static_cast<std::size_t>(i)] == element(me, 1, static_cast<std::size_t>(i)) + 1);
  MPI_Win_unlock_all(window.win);
  MPI_Barrier(kWorld);
}

void use(const Window& window, int unit, bool addresses) {
  g_unit = unit;
  MPI_Aint base = 0;
  if (addresses) MPI_Get_address(window.memory, &base);
  MPI_Allgather(&base, 1, MPI_AINT, g_base, 1, MPI_AINT, kWorld);
  for (const Epoch epoch : kEpochs) all_operations(window, epoch);
  with_requests(window);
}

// ---- windows ----

void created() {
  std::vector<int> memory(2 * kCount);
  Window window{MPI_WIN_NULL, memory.data()};
  MPI(Win_create)(memory.data(), 2 * kBytes, sizeof(int), MPI_INFO_NULL, kWorld, &window.win);
  use(window, sizeof(int), false);
  MPI_Win_free(&window.win);
  CHECK(window.win == MPI_WIN_NULL);
}

void allocated() {
  Window window;
  MPI(Win_allocate)(2 * kBytes, sizeof(int), MPI_INFO_NULL, kWorld, &window.memory, &window.win);
  use(window, sizeof(int), false);
  MPI_Win_free(&window.win);
}

void shared() {
  MPI_Comm node;
  MPI_Comm_split_type(kWorld, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  Window window;
  MPI(Win_allocate_shared)(2 * kBytes, sizeof(int), MPI_INFO_NULL, node, &window.memory, &window.win);
  fill(window.memory, kCount, me, 7);
  MPI_Win_fence(0, window.win);
  MPI_Aint size;
  int unit;
  int* theirs;
  MPI_Win_shared_query(window.win, other, &size, &unit, &theirs);
  CHECK(holds(theirs, kCount, other, 7));
  MPI_Win_fence(0, window.win);
  MPI_Win_free(&window.win);
  MPI_Comm_free(&node);
}

void dynamic() {
  std::vector<int> memory(2 * kCount);
  Window window{MPI_WIN_NULL, memory.data()};
  MPI_Win_create_dynamic(MPI_INFO_NULL, kWorld, &window.win);
  MPI_Win_attach(window.win, memory.data(), 2 * kBytes);
  use(window, 1, true);
  MPI_Win_detach(window.win, memory.data());
  MPI_Win_free(&window.win);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  other = 1 - me;
  origin.resize(kCount);
  result.resize(kCount);
  ones.assign(kCount, 1);
  for (int round = 0; round < 2; ++round) {
    created();
    allocated();
    shared();
    dynamic();
  }
  return finish();
}
