// The loop nests of Figure 4 of "Helper threads for memory registration": two inner loops, each with its own
// communication and buffer, inside the main loop. A call is followed by a short wait within its inner loop
// and by a long one at the loop's last turn, so the call site alone cannot predict the next use of its
// buffer.
#include "example.h"

namespace {

struct InnerLoop {
  std::size_t size = 1 << 20;
  int turns = 0;
  double compute = 0;

  int count() const { return static_cast<int>(size); }
};

// One inner loop's buffer on this rank: always the source, or always the destination.
class Buffer {
 public:
  Buffer(const InnerLoop& loop, bool is_source, std::uint64_t loop_name)
      : loop_(loop),
        is_source_(is_source),
        loop_name_(loop_name),
        data_(example::page_aligned_buffer(loop.size)) {}

  std::byte* data() { return data_.get(); }

  // The computation before a turn's transfer; it makes the contents of the source.
  void compute(std::uint64_t turn) {
    const double start = MPI_Wtime();
    if (is_source_)
      example::fill_pattern(data(), loop_.size, message_name(turn));
    else
      std::memset(data(), 0, loop_.size);
    example::compute_until(start + loop_.compute);
  }

  bool is_right(std::uint64_t turn) const {
    return is_source_ || example::has_pattern(data_.get(), loop_.size, message_name(turn));
  }

 private:
  std::uint64_t message_name(std::uint64_t turn) const { return 2 * turn + loop_name_; }

  const InnerLoop& loop_;
  bool is_source_;
  std::uint64_t loop_name_;
  example::Buffer data_;
};

}  // namespace

int main(int argc, char** argv) {
  example::Mpi mpi(argc, argv);

  int outer = 12;
  InnerLoop loop1{.turns = 6, .compute = 0.005}, loop2{.turns = 4, .compute = 0.008};
  CLI::App app("Figure 4: two inner loops with a communication each, in a main loop. Ranks work in pairs.",
               "nested");
  example::add_count(app, "--outer", outer, "turns of the main loop");
  example::add_count(app, "--inner1", loop1.turns, "turns of the first inner loop");
  example::add_count(app, "--inner2", loop2.turns, "turns of the second inner loop");
  example::add_size(app, "--size1", loop1.size, "bytes of a message in the first inner loop");
  example::add_size(app, "--size2", loop2.size, "bytes of a message in the second inner loop");
  example::add_duration(app, "--compute1", loop1.compute, "computation before each message of the first");
  example::add_duration(app, "--compute2", loop2.compute, "computation before each message of the second");
  if (const auto status = example::parse(mpi, app, argc, argv)) return *status;
  if (mpi.size % 2 != 0) return example::usage_error(mpi, app, "needs an even number of ranks");

  // The even rank of a pair sends in the first inner loop and receives in the second.
  const int partner = mpi.rank ^ 1;
  const bool even = mpi.rank % 2 == 0;
  Buffer buffer1(loop1, even, 0), buffer2(loop2, !even, 1);
  bool right = true;

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < outer; ++i) {
    for (int j = 0; j < loop1.turns; ++j) {
      const std::uint64_t turn = std::uint64_t(i) * loop1.turns + j;
      buffer1.compute(turn);
      if (even)
        MPI_Send(buffer1.data(), loop1.count(), MPI_BYTE, partner, 1, MPI_COMM_WORLD);
      else
        MPI_Recv(buffer1.data(), loop1.count(), MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      right &= buffer1.is_right(turn);
    }
    for (int j = 0; j < loop2.turns; ++j) {
      const std::uint64_t turn = std::uint64_t(i) * loop2.turns + j;
      buffer2.compute(turn);
      if (even)
        MPI_Recv(buffer2.data(), loop2.count(), MPI_BYTE, partner, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      else
        MPI_Send(buffer2.data(), loop2.count(), MPI_BYTE, partner, 2, MPI_COMM_WORLD);
      right &= buffer2.is_right(turn);
    }
  }
  const double seconds = MPI_Wtime() - start;

  if (mpi.rank == 0)
    std::printf("nested: %d x (%d of %zu bytes, then %d of %zu bytes): %.3f s\n", outer, loop1.turns,
                loop1.size, loop2.turns, loop2.size, seconds);
  return example::conclude(mpi, app, right);
}
