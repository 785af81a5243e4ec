// Messages of 8 bytes, far below the size that is registered: the cost of an MPI call. And messages of
// several sizes, below and above it: the cost of registration. Plain MPI, free of Pinion;
// `pinion bench p2p` runs it with and without the preload, tests/e2e/mpi_instructions.sh counts the
// instructions of its cases.
//
//   p2p RANKS [BATCHES ROUNDS [CASE]]
//   p2p RANKS messages
//   p2p 2 transfers BYTES...
//   p2p RANKS new-buffers
//
// The cases `allreduce` and `gaps` run only where they are named: their buffers are large enough to be
// registered, and no MPI moves them (`pinion bench acquire`).
//
// `messages`: for each kind and size the mean ns of a call. Beside it for each call: context switches of rank
// 0 and of its helper, and the helper's ns of processor time. The mean, as a helper interferes now and then.
//
// `transfers`: messages of these sizes with buffers that are used again, and with buffers that are used once:
// ping-pong, and four at a time one way. bench/transfers_pair.cpp moves the same ones without MPI.
//
// `new-buffers`: MPI_Allreduce of 2 and 4 MiB from and to buffers that are new in each call; the mean ns of
// the call alone.
//
// Of two ranks, rank 0 prints for each case the nanoseconds of a call, in the best batch of rounds. One rank
// sends to itself, which slows its own core alone.
#include <mpi.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr int kWindow = 16;
double g_out = 1, g_in = 0;
constexpr int kLarge = 8192;
double g_large[kLarge], g_large_in[kLarge];
constexpr int kBlocks = 4, kBlock = 4096, kStride = 4 * kBlock;  ///< each to be registered
double g_spread[kBlocks * kStride];
int g_rank = 0, g_peer = 0;

struct Case {
  const char* name;
  void (*rounds)(long);
  int calls;   ///< of MPI, by one rank in one round
  int fewest;  ///< ranks
  bool unasked = true;
};

}  // namespace

// Outside of the namespace and never inlined: callgrind finds them by these names.
extern "C" {

[[gnu::noinline]] void p2p_ping_pong(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    if (g_rank == 0) MPI_Send(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD);
    MPI_Recv(&g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (g_rank != 0) MPI_Send(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD);
  }
}

[[gnu::noinline]] void p2p_window(long rounds) {
  MPI_Request requests[2 * kWindow];
  for (long i = 0; i < rounds; ++i) {
    for (int k = 0; k < kWindow; ++k)
      MPI_Irecv(&g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, &requests[k]);
    for (int k = 0; k < kWindow; ++k)
      MPI_Isend(&g_out, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD, &requests[kWindow + k]);
    MPI_Waitall(2 * kWindow, requests, MPI_STATUSES_IGNORE);
  }
}

[[gnu::noinline]] void p2p_sendrecv(long rounds) {
  for (long i = 0; i < rounds; ++i)
    MPI_Sendrecv(&g_out, 1, MPI_DOUBLE, g_peer, 1, &g_in, 1, MPI_DOUBLE, g_peer, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

[[gnu::noinline]] void p2p_self(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    MPI_Request request;
    MPI_Irecv(&g_in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
    MPI_Send(&g_out, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

// Polling in vain.
[[gnu::noinline]] void p2p_poll(long rounds) {
  MPI_Request request;
  int index = 0, flag = 0;
  MPI_Irecv(&g_in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
  for (long i = 0; i < rounds; ++i) MPI_Testany(1, &request, &index, &flag, MPI_STATUS_IGNORE);
  MPI_Send(&g_out, 1, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// In place, alone: the call returns at once.
[[gnu::noinline]] void p2p_allreduce(long rounds) {
  for (long i = 0; i < rounds; ++i)
    MPI_Allreduce(MPI_IN_PLACE, g_large, kLarge, MPI_DOUBLE, MPI_SUM, MPI_COMM_SELF);
}

// Large messages to the process itself, by all calls that begin and end one.
[[gnu::noinline]] void p2p_large_sends(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    MPI_Request request;
    MPI_Irecv(g_large_in, kLarge, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
    MPI_Send(g_large, kLarge, MPI_DOUBLE, 0, 1, MPI_COMM_SELF);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

[[gnu::noinline]] void p2p_large_receives(long rounds) {
  for (long i = 0; i < rounds; ++i) {
    MPI_Request request;
    MPI_Isend(g_large, kLarge, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, &request);
    MPI_Recv(g_large_in, kLarge, MPI_DOUBLE, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
}

// Sends data with gaps between.
[[gnu::noinline]] void p2p_gaps(long rounds) {
  MPI_Datatype blocks;
  MPI_Type_vector(kBlocks, kBlock, kStride, MPI_DOUBLE, &blocks);
  MPI_Type_commit(&blocks);
  for (long i = 0; i < rounds; ++i) MPI_Bcast(g_spread, 1, blocks, 0, MPI_COMM_SELF);
  MPI_Type_free(&blocks);
}

}  // extern "C"

namespace {

constexpr Case kCases[] = {
    {"ping-pong", p2p_ping_pong, 2, 2},
    {"window", p2p_window, 2 * kWindow + 1, 1},
    {"sendrecv", p2p_sendrecv, 1, 1},
    {"self", p2p_self, 3, 1},
    {"poll", p2p_poll, 1, 1},
    {"allreduce", p2p_allreduce, 1, 1, false},
    {"large-sends", p2p_large_sends, 3, 1, false},
    {"large-receives", p2p_large_receives, 3, 1, false},
    {"gaps", p2p_gaps, 1, 1, false},
};

double best_ns(const Case& measured, long batches, long rounds) {
  double best = std::numeric_limits<double>::infinity();
  for (long batch = 0; batch < batches; ++batch) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    measured.rounds(rounds);
    best = std::min(best, MPI_Wtime() - begin);
  }
  return best * 1e9 / (static_cast<double>(rounds) * measured.calls);
}

// ---- messages of several sizes ----

using Buffer = std::vector<char>;

void ping_pong(Buffer& out, Buffer& in, int bytes) {
  if (g_peer == g_rank) {
    MPI_Request request;
    MPI_Irecv(in.data(), bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
    MPI_Send(out.data(), bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return;
  }
  if (g_rank == 0) MPI_Send(out.data(), bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD);
  MPI_Recv(in.data(), bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  if (g_rank != 0) MPI_Send(out.data(), bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD);
}

void alltoall(Buffer& out, Buffer& in, int bytes) {
  MPI_Alltoall(out.data(), bytes, MPI_BYTE, in.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
}

void allreduce(Buffer& out, Buffer& in, int bytes) {
  MPI_Allreduce(out.data(), in.data(), bytes / static_cast<int>(sizeof(double)), MPI_DOUBLE, MPI_SUM,
                MPI_COMM_WORLD);
}

struct Traffic {
  double switches = 0, helper_switches = 0, helper_ns = 0;
};

/// Adds up this thread's traffic, and that of Pinion's if it is in the process.
Traffic traffic() {
  Traffic sum;
  rusage own{};
  ::getrusage(RUSAGE_THREAD, &own);
  sum.switches = static_cast<double>(own.ru_nvcsw + own.ru_nivcsw);
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "pinion-helper") continue;
    std::ifstream(task.path() / "schedstat") >> sum.helper_ns;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (const auto at = line.find("ctxt_switches:"); at != std::string::npos)
        sum.helper_switches += std::atof(line.c_str() + at + std::strlen("ctxt_switches:"));
  }
  return sum;
}

struct Kind {
  const char* name;
  void (*call)(Buffer& out, Buffer& in, int bytes);
};
struct Size {
  const char* name;
  int bytes;
  long calls;  ///< of two ranks: some 50 ms, on one machine or another
};

void measure_messages(int ranks) {
  constexpr Kind kKinds[] = {{"ping-pong", ping_pong}, {"alltoall", alltoall}, {"allreduce", allreduce}};
  constexpr Size kSizes[] = {{"64", 64, 40000},
                             {"16K", 16 << 10, 8000},
                             {"17K", 17 << 10, 8000},
                             {"1M", 1 << 20, 200},
                             {"4M", 4 << 20, 50}};
  for (const Kind& kind : kKinds) {
    for (const Size& size : kSizes) {
      const auto room = static_cast<std::size_t>(size.bytes) * static_cast<std::size_t>(ranks);
      Buffer out(room), in(room);
      const long count = ranks == 1 ? 16 * size.calls : size.calls;
      for (long i = 0; i < count / 10; ++i) kind.call(out, in, size.bytes);  // learns
      MPI_Barrier(MPI_COMM_WORLD);
      const Traffic before = traffic();
      const double begin = MPI_Wtime();
      for (long i = 0; i < count; ++i) kind.call(out, in, size.bytes);
      const double seconds = MPI_Wtime() - begin;
      const Traffic after = traffic();
      if (g_rank != 0) continue;
      const auto calls = static_cast<double>(count);
      const std::string name = std::string(kind.name) + "-" + size.name;
      std::printf("%s.ns %.2f\n%s.switches %.6f\n%s.helper-switches %.6f\n%s.helper-ns %.2f\n", name.c_str(),
                  seconds * 1e9 / calls, name.c_str(), (after.switches - before.switches) / calls,
                  name.c_str(), (after.helper_switches - before.helper_switches) / calls, name.c_str(),
                  (after.helper_ns - before.helper_ns) / calls);
    }
  }
}

// ---- the messages of `pinion bench transfers` ----

double cpu_us() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

/// Equals transfer_messages() of bench/transfers_pair.cpp.
int messages_of(std::size_t bytes, bool reuse) {
  const std::size_t all = std::size_t{reuse ? 64u : 32u} << 20;
  return static_cast<int>(std::clamp<std::size_t>(all / bytes, 4, reuse ? 200 : 32));
}

void transfer_ping_pong(Buffer& out, Buffer& in, int bytes, int messages, int& number) {
  const std::size_t count = out.size() / static_cast<std::size_t>(bytes);
  for (int i = 0; i < messages; ++i, ++number) {
    const std::size_t at = static_cast<std::size_t>(number) % count * static_cast<std::size_t>(bytes);
    if (g_rank == 0) MPI_Send(&out[at], bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD);
    MPI_Recv(&in[at], bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (g_rank != 0) MPI_Send(&out[at], bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD);
  }
}

void transfer_stream(Buffer& out, Buffer& in, int bytes, int messages, int number) {
  constexpr int kAtATime = 4;
  const std::size_t count = out.size() / static_cast<std::size_t>(bytes);
  MPI_Request requests[kAtATime];
  for (int i = 0; i < messages + kAtATime; ++i) {
    MPI_Request& request = requests[i % kAtATime];
    if (i >= kAtATime) MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (i >= messages) continue;
    const std::size_t at = static_cast<std::size_t>(number + i) % count * static_cast<std::size_t>(bytes);
    if (g_rank == 0)
      MPI_Isend(&out[at], bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD, &request);
    else
      MPI_Irecv(&in[at], bytes, MPI_BYTE, g_peer, 1, MPI_COMM_WORLD, &request);
  }
}

void measure_transfers(int bytes, bool reuse) {
  const int messages = messages_of(static_cast<std::size_t>(bytes), reuse);
  const auto room = static_cast<std::size_t>(bytes) * static_cast<std::size_t>(reuse ? 4 : 2 * messages);
  Buffer out(room, 'o'), in(room, 'i');
  int number = 0;
  if (reuse) transfer_ping_pong(out, in, bytes, messages / 4 + 1, number);
  MPI_Barrier(MPI_COMM_WORLD);
  double begin = MPI_Wtime();
  transfer_ping_pong(out, in, bytes, messages, number);
  const double latency = (MPI_Wtime() - begin) * 1e6 / (2 * messages);
  MPI_Barrier(MPI_COMM_WORLD);
  begin = MPI_Wtime();
  double cpu[2] = {cpu_us(), 0};
  transfer_stream(out, in, bytes, messages, number);
  cpu[0] = (cpu_us() - cpu[0]) / messages;
  MPI_Sendrecv(&cpu[0], 1, MPI_DOUBLE, g_peer, 2, &cpu[1], 1, MPI_DOUBLE, g_peer, 2, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
  const double seconds = MPI_Wtime() - begin;
  const std::string name = (reuse ? "reuse-" : "no-reuse-") + std::to_string(bytes);
  if (g_rank == 0)
    std::printf("%s.latency_us %.3f\n%s.bandwidth_MBps %.3f\n%s.cpu_us %.3f\n%s.remote_cpu_us %.3f\n",
                name.c_str(), latency, name.c_str(), double(bytes) * messages / seconds / 1e6, name.c_str(),
                cpu[0], name.c_str(), cpu[1]);
}

// ---- MPI_Allreduce with new buffers ----

void measure_new_buffers() {
  constexpr Size kSizes[] = {{"2M", 2 << 20, 40}, {"4M", 4 << 20, 20}};
  for (const Size& size : kSizes) {
    const long unmeasured = size.calls / 4;
    double seconds = 0;
    for (long i = -unmeasured; i < size.calls; ++i) {
      Buffer out(static_cast<std::size_t>(size.bytes)), in(static_cast<std::size_t>(size.bytes));
      MPI_Barrier(MPI_COMM_WORLD);
      const double begin = MPI_Wtime();
      allreduce(out, in, size.bytes);
      if (i >= 0) seconds += MPI_Wtime() - begin;
    }
    if (g_rank == 0) std::printf("%s %.2f\n", size.name, seconds * 1e9 / static_cast<double>(size.calls));
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &g_rank);
  g_peer = ranks - 1 - g_rank;
  const bool messages = argc == 3 && std::strcmp(argv[2], "messages") == 0;
  const bool new_buffers = argc == 3 && std::strcmp(argv[2], "new-buffers") == 0;
  const bool transfers = argc >= 4 && ranks == 2 && std::strcmp(argv[2], "transfers") == 0;
  const bool as_asked = (argc == 2 || messages || new_buffers || transfers || argc == 4 || argc == 5) &&
                        ranks <= 2 && ranks == std::atoi(argv[1]);
  if (!as_asked && g_rank == 0)
    std::fprintf(stderr,
                 "p2p: started with %d ranks; usage: p2p 1|2 [messages | new-buffers | transfers BYTES... | "
                 "BATCHES ROUNDS [CASE]], in so many ranks\n",
                 ranks);
  if (as_asked && messages) measure_messages(ranks);
  if (as_asked && new_buffers) measure_new_buffers();
  for (int i = 3; as_asked && transfers && i < argc; ++i)
    for (const bool reuse : {true, false}) measure_transfers(std::atoi(argv[i]), reuse);
  for (const Case& one : kCases) {
    if (!as_asked || messages || new_buffers || transfers || ranks < one.fewest) continue;
    if (argc == 5 ? std::strcmp(argv[4], one.name) != 0 : !one.unasked) continue;
    // A window is many messages.
    const long rounds = argc >= 4 ? std::atol(argv[3]) : 8000 / one.calls;
    const double ns = best_ns(one, argc >= 4 ? std::atol(argv[2]) : 40, rounds);
    if (g_rank == 0) std::printf("%s %.2f\n", one.name, ns);
  }
  MPI_Finalize();
  return as_asked ? EXIT_SUCCESS : EXIT_FAILURE;
}
