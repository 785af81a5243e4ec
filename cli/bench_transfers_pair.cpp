#include "bench_transfers_pair.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <sstream>

#include "base/clock.h"
#include "base/range.h"
#include "bench.h"
#include "bench_api.h"
#include "bench_transfers_mover.h"
#include "command.h"
#include "log_directory.h"
#include "text.h"
#include "transfer/large_messages.h"

namespace pinion::cli {

namespace {

using transfer::FabricEndpointOptions;
using transfer::FabricEndpointResult;
using transfer::Protocol;

constexpr unsigned kWindow = TransferMover::kWindow;
/// A process that takes longer than this hangs.
constexpr unsigned kLongest = 600;

Duration cpu_now() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

/// Buffers of one case: those that leave, then those that arrive.
class Buffers {
 public:
  Buffers(std::size_t bytes, unsigned count)
      : bytes_(bytes), stride_(Range{0, bytes}.to_pages().bytes()), count_(count) {
    memory = {nullptr, 2 * stride_ * count};
    void* const made =
        ::mmap(nullptr, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) throw Failure(fmt::format("no memory for buffers of {} bytes", memory.bytes));
    memory.address = static_cast<unsigned char*>(made);
    std::memset(memory.address, 0x5a, memory.bytes);  // faulted in
  }
  ~Buffers() { ::munmap(memory.address, memory.bytes); }
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

/// One process of the two: what it does in each case, and its figures.
class Member {
 public:
  Member(unsigned rank, TransferMover& mover, std::ostringstream& out)
      : rank_(rank), mover_(mover), out_(out) {}

  void run(const TransferCase& one) {
    const unsigned messages = transfer_messages(one), warm = one.reuse ? messages / 4 + 1 : 0;
    const Buffers buffers(one.bytes, one.reuse ? kWindow : 2 * messages);
    mover_.begin(buffers.memory);
    unsigned number = 0;
    ping_pong(one, buffers, warm, number);
    mover_.barrier();
    const Time begin = monotonic_now();
    ping_pong(one, buffers, messages, number);
    const auto took = static_cast<double>(monotonic_now() - begin);
    put(one, "latency_us", took / (2.0 * messages) / 1000);
    stream(one, buffers, messages, number);
    mover_.end();
  }

 private:
  void put(const TransferCase& one, const char* metric, double value) {
    if (rank_ == 0) out_ << fmt::format("{} {} {}\n", name_of(one), metric, value);
  }

  void ping_pong(const TransferCase& one, const Buffers& buffers, unsigned messages, unsigned& number) {
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
    put(one, "registered_peak_bytes", registered.peak());
    put(one, "registered_mean_bytes", registered.mean());
  }

  const unsigned rank_;
  TransferMover& mover_;
  std::ostringstream& out_;
};

/// Returns the report of the process.
std::string member(unsigned rank, const TransferSubject& subject, const std::string& provider,
                   const std::string& directory, const std::vector<TransferCase>& cases) {
  ::unsetenv("PINION");
  must(pinion_start(fmt::format("retention={}", subject.retention).c_str()));
  std::ostringstream out;
  {
    FabricEndpointOptions options;
    options.job = {rank, 2, directory};
    options.provider = provider;
    const FabricEndpointResult made = open_fabric_endpoint(options);
    if (made.error) throw Failure(made.error.message);
    const auto mover = make_transfer_mover(*made.endpoint, subject);
    if (const Error error = made.endpoint->connect()) throw Failure(error.message);
    if (rank == 0) out << "provider " << made.endpoint->capabilities().provider << " 0\n";
    Member self(rank, *mover, out);
    for (const TransferCase& one : cases) self.run(one);
    mover->close();
    if (const Error error = made.endpoint->close()) throw Failure(error.message);
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
  static const std::vector<TransferSubject> subjects = {
      {"everything-registered", "leave-pinned", -1, false},
      {"bounce", "on-demand", as_is(Protocol::bounce), false},
      {"on-demand", "on-demand", as_is(Protocol::rendezvous), false},
      {"leave-pinned", "leave-pinned", as_is(Protocol::rendezvous), false},
      {"helper", "helper", as_is(Protocol::automatic), false},
      {"pipeline", "on-demand", as_is(Protocol::pipeline), false},
      {"pipeline-pinned", "leave-pinned", as_is(Protocol::pipeline), false},
      {"prepared", "on-demand", as_is(Protocol::prepared), true},
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

TransferFigures measure_transfers(const TransferSubject& subject, const std::string& provider,
                                  const std::vector<TransferCase>& cases) {
  const TemporaryLogDirectory directory;
  int ends[2];
  if (::pipe(ends) != 0) throw Failure("no pipe");
  std::fflush(nullptr);
  std::array<pid_t, 2> children{};
  for (unsigned rank = 0; rank < 2; ++rank)
    children[rank] = start(
        [&] {
          ::close(ends[0]);
          return member(rank, subject, provider, directory.path() + "/job", cases);
        },
        ends[1]);
  ::close(ends[1]);
  const std::string text = read_all(ends[0]);
  ::close(ends[0]);
  bool failed = false;
  for (const pid_t child : children) {
    int status = 0;
    failed |= child < 0 || ::waitpid(child, &status, 0) != child || status != 0;
  }
  TransferFigures figures;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("failed ")) throw Failure(line.substr(7));
    std::istringstream words(line);
    std::string name, metric;
    double value = 0;
    words >> name >> metric >> value;
    if (name == "provider")
      figures.provider = metric;
    else
      figures.cases[name][metric] = value;
  }
  if (failed) throw Failure("one of the two processes ended early");
  return figures;
}

}  // namespace pinion::cli
