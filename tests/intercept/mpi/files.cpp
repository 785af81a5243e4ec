// MPI-IO: every way to read and write a file, each rank a part of its own. Any number of ranks. The file's
// name is the first argument.
#include "forms.h"

namespace {

constexpr int kCount = 15013;  // 60 KB
const MPI_Comm kWorld = MPI_COMM_WORLD;
int me, ranks;
MPI_File file;

MPI_Offset own_place() { return static_cast<MPI_Offset>(me) * kCount * static_cast<MPI_Offset>(sizeof(int)); }

// `transfer` moves kCount ints between the buffer and the file. Ranks that share a pointer come in any order,
// so each reads the data of some rank.
template <class Transfer>
void write_with(int what, bool shared, Transfer transfer) {
  MPI_Barrier(kWorld);
  MPI_File_seek(file, own_place(), MPI_SEEK_SET);
  MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
  MPI_Barrier(kWorld);
  auto data = message(kCount, me, what);
  transfer(data.data());
  CHECK(holds(data, me, what));
  MPI_File_sync(file);
  MPI_Barrier(kWorld);
  std::vector<int> in(kCount);
  MPI_File_read_at(file, own_place(), in.data(), kCount, MPI_INT, MPI_STATUS_IGNORE);
  bool found = holds(in, me, what);
  for (int i = 0; shared && i < ranks; ++i) found = found || holds(in, i, what);
  CHECK(found);
}
template <class Transfer>
void read_with(int what, bool shared, Transfer transfer) {
  const auto data = message(kCount, me, what);
  MPI_Barrier(kWorld);
  MPI_File_write_at(file, own_place(), data.data(), kCount, MPI_INT, MPI_STATUS_IGNORE);
  MPI_File_sync(file);
  MPI_File_seek(file, own_place(), MPI_SEEK_SET);
  MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
  MPI_Barrier(kWorld);
  std::vector<int> in(kCount);
  transfer(in.data());
  bool found = holds(in, me, what);
  for (int i = 0; shared && i < ranks; ++i) found = found || holds(in, i, what);
  CHECK(found);
}

#define NONBLOCKING(call, ...)              \
  do {                                      \
    MPI_Request request_;                   \
    MPI(call)(__VA_ARGS__, &request_);      \
    MPI_Wait(&request_, MPI_STATUS_IGNORE); \
  } while (false)
#define WRITE(what, shared, ...) write_with(what, shared, [](int* data) { __VA_ARGS__; })
#define READ(what, shared, ...) read_with(what, shared, [](int* data) { __VA_ARGS__; })
#define BUFFER data, kCount, MPI_INT

void writes() {
  WRITE(1, false, MPI(File_write)(file, BUFFER, MPI_STATUS_IGNORE));
  WRITE(2, false, MPI(File_write_all)(file, BUFFER, MPI_STATUS_IGNORE));
  WRITE(3, true, MPI(File_write_shared)(file, BUFFER, MPI_STATUS_IGNORE));
  WRITE(4, false, MPI(File_write_ordered)(file, BUFFER, MPI_STATUS_IGNORE));
  WRITE(5, false, MPI(File_write_at)(file, own_place(), BUFFER, MPI_STATUS_IGNORE));
  WRITE(6, false, MPI(File_write_at_all)(file, own_place(), BUFFER, MPI_STATUS_IGNORE));
  WRITE(7, false, NONBLOCKING(File_iwrite, file, BUFFER));
  WRITE(8, false, NONBLOCKING(File_iwrite_all, file, BUFFER));
  WRITE(9, true, NONBLOCKING(File_iwrite_shared, file, BUFFER));
  WRITE(10, false, NONBLOCKING(File_iwrite_at, file, own_place(), BUFFER));
  WRITE(11, false, NONBLOCKING(File_iwrite_at_all, file, own_place(), BUFFER));
  WRITE(12, false, MPI(File_write_all_begin)(file, BUFFER);
        MPI_File_write_all_end(file, data, MPI_STATUS_IGNORE));
  WRITE(13, false, MPI(File_write_at_all_begin)(file, own_place(), BUFFER);
        MPI_File_write_at_all_end(file, data, MPI_STATUS_IGNORE));
  WRITE(14, false, MPI(File_write_ordered_begin)(file, BUFFER);
        MPI_File_write_ordered_end(file, data, MPI_STATUS_IGNORE));
}

void reads() {
  READ(21, false, MPI(File_read)(file, BUFFER, MPI_STATUS_IGNORE));
  READ(22, false, MPI(File_read_all)(file, BUFFER, MPI_STATUS_IGNORE));
  READ(23, true, MPI(File_read_shared)(file, BUFFER, MPI_STATUS_IGNORE));
  READ(24, false, MPI(File_read_ordered)(file, BUFFER, MPI_STATUS_IGNORE));
  READ(25, false, MPI(File_read_at)(file, own_place(), BUFFER, MPI_STATUS_IGNORE));
  READ(26, false, MPI(File_read_at_all)(file, own_place(), BUFFER, MPI_STATUS_IGNORE));
  READ(27, false, NONBLOCKING(File_iread, file, BUFFER));
  READ(28, false, NONBLOCKING(File_iread_all, file, BUFFER));
  READ(29, true, NONBLOCKING(File_iread_shared, file, BUFFER));
  READ(30, false, NONBLOCKING(File_iread_at, file, own_place(), BUFFER));
  READ(31, false, NONBLOCKING(File_iread_at_all, file, own_place(), BUFFER));
  READ(32, false, MPI(File_read_all_begin)(file, BUFFER);
       MPI_File_read_all_end(file, data, MPI_STATUS_IGNORE));
  READ(33, false, MPI(File_read_at_all_begin)(file, own_place(), BUFFER);
       MPI_File_read_at_all_end(file, data, MPI_STATUS_IGNORE));
  READ(34, false, MPI(File_read_ordered_begin)(file, BUFFER);
       MPI_File_read_ordered_end(file, data, MPI_STATUS_IGNORE));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  me = world_rank();
  ranks = world_size();
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
  if (MPI_File_open(kWorld, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) != MPI_SUCCESS) {
    std::printf("rank %d: cannot open %s\n", me, argv[1]);
    MPI_Abort(kWorld, 1);
  }
  for (int round = 0; round < 2; ++round) {
    writes();
    reads();
  }
  MPI_File_close(&file);
  return finish();
}
