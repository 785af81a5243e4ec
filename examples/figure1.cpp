// The microbenchmark of Figure 1 of "Helper threads for memory registration": a sender and a receiver
// exchange three buffers in turn, each message followed by a computation. With reuse the same three buffers
// serve every iteration; without, every message goes from and to unused memory, in random order.
#include <numeric>
#include <random>
#include <vector>

#include "example.h"

namespace {

constexpr int kBuffers = 3;
constexpr int kSender = 0, kReceiver = 1;
constexpr int kReadyTag = 1, kMessageTag = 2;

struct Options {
  std::size_t size = 1 << 20;
  int iterations = 10;
  double compute = 0.020;
  double jitter = 0;
  bool reuse = true;
  bool sync = true;
};

// The buffers of one side, in the order of the messages.
class Buffers {
 public:
  Buffers(const Options& options, std::mt19937_64& random) : reuse_(options.reuse) {
    const int count = kBuffers * (options.reuse ? 1 : options.iterations);
    for (int i = 0; i < count; ++i) buffers_.push_back(example::page_aligned_buffer(options.size));
    if (!options.reuse) std::shuffle(buffers_.begin(), buffers_.end(), random);
  }
  std::byte* of_message(int message) const { return buffers_[reuse_ ? message % kBuffers : message].get(); }

 private:
  bool reuse_;
  std::vector<example::Buffer> buffers_;
};

// Each side prepares its next buffer (or checks its last) as part of the computation, so that a message's
// time excludes the page faults of first use and the check.
class Side {
 public:
  Side(const Options& options, int rank) : options_(options), random_(rank + 1), buffers_(options, random_) {}

  // The sender's part. The time of each message, in seconds.
  std::vector<double> send() {
    std::vector<double> times;
    fill(0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int message = 0; message < messages(); ++message) {
      if (options_.sync)
        MPI_Recv(nullptr, 0, MPI_BYTE, kReceiver, kReadyTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const double start = MPI_Wtime();
      MPI_Send(buffers_.of_message(message), count(), MPI_BYTE, kReceiver, kMessageTag, MPI_COMM_WORLD);
      const double end = MPI_Wtime();
      times.push_back(end - start);
      if (message + 1 < messages()) fill(message + 1);
      compute(end);
    }
    return times;
  }

  // The receiver's part. Whether every message arrived as it was sent.
  bool receive() {
    bool right = true;
    wipe(0);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int message = 0; message < messages(); ++message) {
      if (options_.sync) MPI_Send(nullptr, 0, MPI_BYTE, kSender, kReadyTag, MPI_COMM_WORLD);
      std::byte* buffer = buffers_.of_message(message);
      MPI_Recv(buffer, count(), MPI_BYTE, kSender, kMessageTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const double end = MPI_Wtime();
      right &= example::has_pattern(buffer, options_.size, message);
      if (message + 1 < messages()) wipe(message + 1);
      compute(end);
    }
    return right;
  }

 private:
  int messages() const { return options_.iterations * kBuffers; }
  int count() const { return static_cast<int>(options_.size); }
  void fill(int message) { example::fill_pattern(buffers_.of_message(message), options_.size, message); }
  void wipe(int message) { std::memset(buffers_.of_message(message), 0, options_.size); }

  void compute(double start) {
    std::uniform_real_distribution<double> spread(-options_.jitter, options_.jitter);
    example::compute_until(start + options_.compute * (1 + spread(random_)));
  }

  const Options& options_;
  std::mt19937_64 random_;
  Buffers buffers_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

int main(int argc, char** argv) {
  example::Mpi mpi(argc, argv);

  Options options;
  CLI::App app("Figure 1: three buffers sent in turn, a computation after each. Needs two ranks.", "figure1");
  example::add_size(app, "--size", options.size, "bytes of a message");
  example::add_count(app, "--iterations", options.iterations, "turns of the loop, three messages each");
  example::add_duration(app, "--compute", options.compute, "computation after each message");
  example::add_share(app, "--jitter", options.jitter, "how far a computation's length strays, either way");
  app.add_flag("--reuse,!--no-reuse", options.reuse, "the same three buffers throughout (default)");
  app.add_flag("--sync,!--no-sync", options.sync,
               "time a message once the receiver is ready, not how late it is (default)");
  if (const auto status = example::parse(mpi, app, argc, argv)) return *status;
  if (mpi.size != 2) return example::usage_error(mpi, app, "needs two ranks, as in mpirun -n 2");

  Side side(options, mpi.rank);
  bool right = true;
  if (mpi.rank == kSender) {
    const std::vector<double> times = side.send();
    const double mean = std::accumulate(times.begin(), times.end(), 0.0) / double(times.size());
    std::printf("figure1: %zu messages of %zu bytes, %s: message time median %.1f us, mean %.1f us\n",
                times.size(), options.size, options.reuse ? "reuse" : "no reuse", median(times) * 1e6,
                mean * 1e6);
  } else {
    right = side.receive();
  }
  return example::conclude(mpi, app, right);
}
