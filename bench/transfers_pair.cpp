#include "bench/transfers_pair.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/range.h"
#include "bench/api.h"
#include "bench/bench.h"
#include "bench/transfers_mover.h"
#include "bench/wire.h"
#include "cli/command.h"
#include "cli/run/log_directory.h"
#include "cli/system_files.h"
#include "cli/text.h"
#include "papers/messages/large_messages.h"

namespace pinion::cli {

namespace {

using transfer::FabricEndpointOptions;
using transfer::FabricEndpointResult;
using transfer::Protocol;

constexpr unsigned kWindow = TransferMover::kWindow;
/// Turns of all buffers before those that count, where a pause follows each message.
constexpr unsigned kLearningTurns = 3;
/// A process that takes longer than this hangs.
constexpr unsigned kLongest = 600;

Duration cpu_now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

constexpr std::size_t kHugepage = std::size_t{2} << 20;

std::size_t transparent_bytes() {
  return std::strtoull(field_of("/proc/self/smaps_rollup", "AnonHugePages").c_str(), nullptr, 10) << 10;
}

/// Buffers of one case: those that leave, then those that arrive. Faulted in.
class Buffers {
 public:
  Buffers(std::size_t bytes, unsigned count, TransferPages pages)
      : bytes_(bytes),
        stride_(pages == TransferPages::ordinary ? Range{0, bytes}.to_pages().bytes()
                                                 : (bytes + kHugepage - 1) / kHugepage * kHugepage),
        count_(count) {
    memory.bytes = 2 * stride_ * count;
    // Transparent hugepages are aligned; the kernel aligns those of hugetlb.
    mapped_ = memory.bytes + (pages == TransferPages::transparent ? kHugepage : 0);
    map_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | (pages == TransferPages::hugetlb ? MAP_HUGETLB : 0), -1, 0);
    if (map_ == MAP_FAILED && pages == TransferPages::hugetlb)
      throw Failure(fmt::format("no hugepages are free: /proc/sys/vm/nr_hugepages has {}, {} needs {} more",
                                read_text("/proc/sys/vm/nr_hugepages"), size_name(bytes),
                                2 * memory.bytes / kHugepage));
    if (map_ == MAP_FAILED) throw Failure(fmt::format("no memory for buffers of {} bytes", memory.bytes));
    memory.address = static_cast<unsigned char*>(map_);
    if (pages != TransferPages::transparent) {
      if (pages == TransferPages::ordinary) ::madvise(map_, mapped_, MADV_NOHUGEPAGE);
      std::memset(memory.address, 0x5a, memory.bytes);
      return;
    }
    memory.address += -reinterpret_cast<Address>(map_) % kHugepage;
    ::madvise(memory.address, memory.bytes, MADV_HUGEPAGE);
    const std::size_t before = transparent_bytes();
    std::memset(memory.address, 0x5a, memory.bytes);
    if (const std::size_t given = transparent_bytes() - before; given < memory.bytes)
      throw Failure(fmt::format("the kernel has {} of {} bytes on transparent hugepages (they are set to {})",
                                given, memory.bytes,
                                chosen_word(read_text("/sys/kernel/mm/transparent_hugepage/enabled"))));
  }
  ~Buffers() { ::munmap(map_, mapped_); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;

  unsigned char* out(unsigned i) const { return memory.address + stride_ * (i % count_); }
  unsigned char* in(unsigned i) const { return memory.address + stride_ * (count_ + i % count_); }
  /// The number of a message, at both of its ends.
  void mark(unsigned i) const {
    std::memcpy(out(i), &i, sizeof i);
    std::memcpy(out(i) + bytes_ - sizeof i, &i, sizeof i);
  }
  void check(unsigned i) const {
    if (std::memcmp(in(i), &i, sizeof i) != 0 || std::memcmp(in(i) + bytes_ - sizeof i, &i, sizeof i) != 0)
      throw Failure(fmt::format("message {} of {} bytes arrived wrong", i, bytes_));
  }

  TransferMemory memory;

 private:
  const std::size_t bytes_, stride_;
  const unsigned count_;
  std::size_t mapped_;
  void* map_;
};

/// Registered bytes of the process, over a stretch of time.
class Registered {
 public:
  void sample() {
    const Time now = monotonic_now();
    if (now - last_ < 20 * kMicrosecond) return;
    struct pinion_statistics statistics {};
    statistics.size = sizeof statistics;
    if (::pinion_statistics(nullptr, &statistics) != 0) return;
    const auto bytes = static_cast<double>(statistics.registered_bytes);
    if (last_ != 0)
      area_ += before_ * static_cast<double>(now - last_), time_ += static_cast<double>(now - last_);
    peak_ = std::max(peak_, bytes);
    before_ = bytes;
    last_ = now;
  }
  double peak() const { return peak_; }
  double mean() const { return time_ > 0 ? area_ / time_ : peak_; }

 private:
  Time last_ = 0;
  double before_ = 0, peak_ = 0, area_ = 0, time_ = 0;
};

/// Round trips before the ones that count: for the helper to learn by, and spend its start credit.
unsigned learning_messages(const TransferCase& one) {
  constexpr std::size_t kAll = std::size_t{256} << 20;
  return static_cast<unsigned>(std::clamp<std::size_t>(kAll / one.bytes, 4, 1000));
}

/// One process of the two: its work in each case, and its figures.
class Member {
 public:
  Member(unsigned rank, TransferMover& mover, TransferPages pages, Duration pause, std::ostringstream& out)
      : rank_(rank), mover_(mover), pages_(pages), pause_(pause), out_(out) {}

  void run(const TransferCase& one) {
    const unsigned messages = transfer_messages(one), learning = one.reuse ? learning_messages(one) : 0;
    const Buffers buffers(one.bytes, one.reuse ? kWindow : 2 * messages, pages_);
    mover_.begin(buffers.memory);
    unsigned number = 0;
    if (pause_ > 0) {
      if (one.reuse) paused(one, buffers, kLearningTurns * kWindow, number);
      const auto [us, registered] = paused(one, buffers, messages, number);
      put(one, "latency_us", us);
      put_registered(one, registered);
      return mover_.end();
    }
    if (learning > 0) put(one, "learning_us", ping_pong(one, buffers, learning, number));
    put(one, "latency_us", ping_pong(one, buffers, messages, number));
    stream(one, buffers, messages, number);
    mover_.end();
  }

 private:
  void put(const TransferCase& one, const char* metric, double value) {
    if (rank_ == 0) out_ << fmt::format("{} {} {}\n", name_of(one), metric, value);
  }

  /// Microseconds of a message.
  double ping_pong(const TransferCase& one, const Buffers& buffers, unsigned messages, unsigned& number) {
    mover_.barrier();
    const Time begin = monotonic_now();
    for (unsigned i = 0; i < messages; ++i, ++number) {
      buffers.mark(number);
      if (rank_ == 0) {
        mover_.send(0, buffers.out(number), one.bytes);
        mover_.finish_send(0);
      }
      mover_.receive(0, buffers.in(number), one.bytes);
      mover_.finish_receive(0);
      buffers.check(number);
      if (rank_ == 1) {
        mover_.send(0, buffers.out(number), one.bytes);
        mover_.finish_send(0);
      }
    }
    return static_cast<double>(monotonic_now() - begin) / (2.0 * messages) / 1000;
  }

  /// One way, one at a time, and a computation after each, as Figure 1 of the helper-threads paper has it.
  /// Returns the microseconds of a message at the sender, and what it has registered meanwhile.
  std::pair<double, Registered> paused(const TransferCase& one, const Buffers& buffers, unsigned messages,
                                       unsigned& number) {
    Registered registered;
    mover_.between([&] { registered.sample(); });
    mover_.barrier();
    Duration sum = 0;
    for (unsigned i = 0; i < messages; ++i, ++number) {
      buffers.mark(number);
      const Time begin = monotonic_now();
      if (rank_ == 0) {
        mover_.send(0, buffers.out(number), one.bytes);
        mover_.finish_send(0);
      } else {
        mover_.receive(0, buffers.in(number), one.bytes);
        mover_.finish_receive(0);
        buffers.check(number);
      }
      const Time end = monotonic_now();
      sum += end - begin;
      for (; monotonic_now() - end < pause_; std::this_thread::sleep_for(std::chrono::milliseconds(1)))
        registered.sample();
    }
    mover_.barrier();
    mover_.between({});
    return {static_cast<double>(sum) / messages / 1000, registered};
  }

  void put_registered(const TransferCase& one, const Registered& registered) {
    put(one, "registered_peak_bytes", registered.peak());
    put(one, "registered_mean_bytes", registered.mean());
  }

  /// One way, several at a time.
  void stream(const TransferCase& one, const Buffers& buffers, unsigned messages, unsigned number) {
    Registered registered;
    mover_.between([&] { registered.sample(); });
    mover_.barrier();
    const Time begin = monotonic_now();
    const Duration cpu_begin = cpu_now();
    for (unsigned i = 0; i < messages + kWindow; ++i) {
      const unsigned slot = i % kWindow;
      if (i >= kWindow) {
        if (rank_ == 0) mover_.finish_send(slot);
        if (rank_ == 1) mover_.finish_receive(slot), buffers.check(number + i - kWindow);
      }
      if (i >= messages) continue;
      buffers.mark(number + i);
      if (rank_ == 0) mover_.send(slot, buffers.out(number + i), one.bytes);
      if (rank_ == 1) mover_.receive(slot, buffers.in(number + i), one.bytes);
    }
    const double cpu = static_cast<double>(cpu_now() - cpu_begin) / messages / 1000;
    const double theirs = mover_.exchange(cpu);  // and all has arrived
    const auto seconds = static_cast<double>(monotonic_now() - begin) / 1e9;
    mover_.between({});
    put(one, "bandwidth_MBps", static_cast<double>(one.bytes) * messages / seconds / 1e6);
    put(one, "cpu_us", cpu);
    put(one, "remote_cpu_us", theirs);
    put_registered(one, registered);
  }

  const unsigned rank_;
  TransferMover& mover_;
  const TransferPages pages_;
  const Duration pause_;
  std::ostringstream& out_;
};

/// The endpoint of one process. `socket`: for an emulated wire.
class Connection {
 public:
  Connection(unsigned rank, const TransferNetwork& network, const std::string& directory, int socket) {
    if (network.wire_bytes_per_second > 0) {
      wire_ = std::make_unique<EmulatedWire>(rank, socket, network.wire_bytes_per_second);
      return;
    }
    FabricEndpointOptions options;
    options.job = {rank, 2, directory};
    options.provider = network.provider;
    FabricEndpointResult made = open_fabric_endpoint(options);
    if (made.error) throw Failure(made.error.message);
    fabric_ = std::move(made.endpoint);
  }
  transfer::Endpoint& endpoint() {
    return wire_ ? static_cast<transfer::Endpoint&>(*wire_) : static_cast<transfer::Endpoint&>(*fabric_);
  }
  void connect() {
    if (wire_) return wire_->connect();
    if (const Error error = fabric_->connect()) throw Failure(error.message);
  }
  void close() {
    wire_.reset();
    if (!fabric_) return;
    if (const Error error = fabric_->close()) throw Failure(error.message);
  }

 private:
  std::unique_ptr<EmulatedWire> wire_;
  std::unique_ptr<transfer::FabricEndpoint> fabric_;
};

/// Returns the report of the process.
std::string member(unsigned rank, const TransferSubject& subject, const TransferNetwork& network,
                   const std::string& directory, int socket, const std::vector<TransferCase>& cases) {
  ::unsetenv("PINION");
  must(pinion_start(fmt::format("retention={}", subject.retention).c_str()));
  std::ostringstream out;
  {
    Connection connection(rank, network, directory, socket);
    transfer::Endpoint& endpoint = connection.endpoint();
    const auto mover = make_transfer_mover(endpoint, subject);
    connection.connect();
    if (rank == 0) out << "provider 0 " << endpoint.capabilities().provider << '\n';
    Member self(rank, *mover, subject.pages, network.pause, out);
    for (const TransferCase& one : cases)
      if (measures(subject, one)) self.run(one);
    mover->close();
    connection.close();
  }
  must(pinion_stop());
  return out.str();
}

/// A child that writes its report, or its failure, to `to`.
pid_t start(const std::function<std::string()>& report, int to) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::alarm(kLongest);
  std::string text;
  int status = 0;
  try {
    text = report();
  } catch (const std::exception& failure) {
    text = fmt::format("failed {}\n", failure.what());
    status = 1;
  }
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(to, text.data() + at, text.size() - at);
    if (written <= 0) break;
    at += static_cast<std::size_t>(written);
  }
  ::_exit(status);
}

std::string read_all(int from) {
  std::string text;
  char part[4096];
  for (ssize_t n; (n = ::read(from, part, sizeof part)) > 0;) text.append(part, static_cast<std::size_t>(n));
  return text;
}

}  // namespace

const std::vector<TransferSubject>& transfer_subjects() {
  static const auto as_is = [](Protocol protocol) { return static_cast<int>(protocol); };
  using enum TransferPages;
  static const std::vector<TransferSubject> subjects = {
      {"everything-registered", "leave-pinned", -1, false, ordinary},
      {"bounce", "on-demand", as_is(Protocol::bounce), false, ordinary},
      {"on-demand", "on-demand", as_is(Protocol::rendezvous), false, ordinary},
      {"leave-pinned", "leave-pinned", as_is(Protocol::rendezvous), false, ordinary},
      {"helper", "helper", as_is(Protocol::automatic), false, ordinary},
      {"pipeline", "on-demand", as_is(Protocol::pipeline), false, ordinary},
      {"pipeline-pinned", "leave-pinned", as_is(Protocol::pipeline), false, ordinary},
      {"prepared", "on-demand", as_is(Protocol::prepared), true, ordinary},
      {"on-demand-thp", "on-demand", as_is(Protocol::rendezvous), false, transparent},
      {"leave-pinned-thp", "leave-pinned", as_is(Protocol::rendezvous), false, transparent},
      {"on-demand-hugetlb", "on-demand", as_is(Protocol::rendezvous), false, hugetlb},
      {"leave-pinned-hugetlb", "leave-pinned", as_is(Protocol::rendezvous), false, hugetlb},
  };
  return subjects;
}

std::string name_of(const TransferCase& one) {
  return fmt::format("{}-{}", one.reuse ? "reuse" : "no-reuse", size_name(one.bytes));
}

unsigned transfer_messages(const TransferCase& one) {
  const std::size_t all = std::size_t{one.reuse ? 64u : 32u} << 20;
  return static_cast<unsigned>(std::clamp<std::size_t>(all / one.bytes, 4, one.reuse ? 200 : 32));
}

bool measures(const TransferSubject& subject, const TransferCase& one) {
  return subject.pages == TransferPages::ordinary || (one.reuse && one.bytes >= kHugepage / 4);
}

namespace {

/// The reports of both processes.
TransferFigures read_figures(const std::string& text) {
  TransferFigures figures;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("failed ")) throw Failure(line.substr(7));
    std::istringstream words(line);
    std::string name, metric;
    words >> name >> metric >> std::ws;
    if (name == "provider")
      std::getline(words, figures.provider);
    else
      words >> figures.cases[name][metric];
  }
  return figures;
}

}  // namespace

TransferFigures measure_transfers(const TransferSubject& subject, const TransferNetwork& network,
                                  const std::vector<TransferCase>& cases) {
  const TemporaryLogDirectory directory;
  int ends[2], sockets[2];
  if (::pipe(ends) != 0 || ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets) != 0)
    throw Failure("no pipe");
  std::fflush(nullptr);
  std::array<pid_t, 2> children{};
  for (unsigned rank = 0; rank < 2; ++rank)
    children[rank] = start(
        [&] {
          ::close(ends[0]);
          ::close(sockets[1 - rank]);
          return member(rank, subject, network, directory.path() + "/job", sockets[rank], cases);
        },
        ends[1]);
  for (const int end : {ends[1], sockets[0], sockets[1]}) ::close(end);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    failed |= child < 0 || ::waitpid(child, &status, 0) != child || status != 0;
  }
  TransferFigures figures = read_figures(text);
  if (failed) throw Failure("one of the two processes ended early");
  return figures;
}

}  // namespace pinion::cli
