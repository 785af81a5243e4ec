// How long other threads of a process wait beside the helper while it turns memory into hugepages. The
// helper's own thread, with all that it sets for itself, collapses 64 MiB on ordinary pages as the engine
// does, by calls of several sizes. Meanwhile a thread of the program does one kind of call at a steady pace.
//
//   collapse_waits [--rounds N] [--busy N,...] [--calls MiB,...] [--pause US] [--share N] [--waits NAME,...]
//
// --busy: so many processes that compute beside the two threads. --calls: bytes of a call; 0: the helper
// computes in place of collapsing; -1: it sleeps. All of them take turns in each round. --pause: between two
// calls. --share: a round lasts N times as long as the helper's work, which is so small a share of it then,
// as the time budget has it. Prints a row each, in us: the wall time of a call, and the part of it in which
// the thread was asleep, so that it waited for another thread, and not for a processor. A call that lasts
// longer than the pace delays those due meanwhile, and they are counted with what is left of it.
#include <fcntl.h>
#include <getopt.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "device/kernel/collapse.h"
#include "helper/helper_thread.h"
#include "lease/bell.h"

namespace pinion::test {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kStretch = 64 * kMiB, kElsewhere = 256 * kMiB;
constexpr int kComputes = 0, kSleeps = -1;
constexpr Duration kWithout = 20 * kMillisecond;  // as long as a stretch takes on an idle processor

void fail(const char* what) {
  std::perror(what);
  std::exit(2);
}

char* map(std::size_t bytes) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) fail("mmap");
  return static_cast<char*>(at);
}

/// Nanoseconds for which this thread has waited for a processor.
Duration queued() {
  thread_local const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  char text[96] = {};
  if (::pread(file, text, sizeof text - 1, 0) <= 0) fail("/proc/thread-self/schedstat");
  char* second = nullptr;
  std::strtoull(text, &second, 10);
  return static_cast<Duration>(std::strtoull(second, nullptr, 10));
}

/// Maps 64 MiB on ordinary pages, of whole hugepages, anew for each stretch.
class Memory {
 public:
  Memory() : mapping_(map(kStretch + kMiB * 2)) {
    const auto at = reinterpret_cast<Address>(mapping_);
    range_ = {(at + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB), 0};
    range_.end = range_.begin + kStretch;
    // A fork would make the pages its child's, too.
    ::madvise(mapping_, kStretch + 2 * kMiB, MADV_DONTFORK);
    ::prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    for (Address page = range_.begin; page < range_.end; page += page_size())
      *reinterpret_cast<volatile char*>(page) = 1;
    ::prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
  }
  ~Memory() { ::munmap(mapping_, kStretch + 2 * kMiB); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Range range() const { return range_; }

 private:
  char* mapping_;
  Range range_;
};

/// Makes one kind of call of the program's.
class Caller {
 public:
  struct Kind {
    const char* name;
    Duration pace;
    void (Caller::*call)();
  };
  static const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = {{"write", 20 * kMicrosecond, &Caller::write},
                                          {"fault", 20 * kMicrosecond, &Caller::fault},
                                          {"mmap+munmap", 50 * kMicrosecond, &Caller::map_and_unmap},
                                          {"fork", 2 * kMillisecond, &Caller::fork}};
    return all;
  }

  struct Waits {
    std::vector<double> wall, asleep;  ///< us
  };

  /// Calls at the pace of its kind until the helper has done.
  void run(const Kind& kind, Range range, const std::atomic<bool>& done, Waits& waits) {
    range_ = range;
    for (Time due = monotonic_now(); !done.load(std::memory_order_acquire);) {
      while (monotonic_now() < due) {
      }
      const Duration in_queue = queued();
      const Time begun = monotonic_now();
      const Duration computed = thread_cpu_now();
      (this->*kind.call)();
      const Duration cpu = thread_cpu_now() - computed, wall = monotonic_now() - begun;
      add(waits.wall, wall, kind.pace);
      add(waits.asleep, std::max<Duration>(wall - cpu - (queued() - in_queue), 0), kind.pace);
      if (child_ > 0) ::waitpid(std::exchange(child_, 0), nullptr, 0);
      due = std::max(due + kind.pace, begun + wall);
    }
  }

 private:
  static void add(std::vector<double>& samples, Duration took, Duration pace) {
    do samples.push_back(static_cast<double>(took) / kMicrosecond);
    while ((took -= pace) > 0);
  }
  void write() {
    const std::size_t page = random_() % (kStretch / page_size());
    *reinterpret_cast<volatile char*>(range_.begin + page * page_size()) = 2;
  }
  void fault() {
    elsewhere_[at_] = 1;
    if ((at_ += page_size()) < kElsewhere) return;
    ::madvise(elsewhere_, kElsewhere, MADV_DONTNEED);
    at_ = 0;
  }
  void map_and_unmap() { ::munmap(map(2 * page_size()), 2 * page_size()); }
  void fork() {
    child_ = ::fork();
    if (child_ == 0) ::_exit(0);
  }

  char* const elsewhere_ = [] {
    char* const at = map(kElsewhere);
    ::madvise(at, kElsewhere, MADV_NOHUGEPAGE);
    return at;
  }();
  std::size_t at_ = 0;
  std::minstd_rand random_;
  Range range_;
  pid_t child_ = 0;
};

/// Processes that compute, one for each of `count`, for as long as it lives.
class Busy {
 public:
  explicit Busy(int count) {
    for (int i = 0; i < count; ++i) {
      const pid_t child = ::fork();
      if (child < 0) fail("fork");
      if (child > 0) {
        children_.push_back(child);
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (volatile unsigned turns = 0;;) turns = turns + 1;
    }
  }
  ~Busy() {
    for (const pid_t child : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  std::vector<pid_t> children_;
};

/// Names the helper's work in a round.
struct Work {
  int call = 0;
  Duration pause = 0;
  int share = 1;
};

struct Stretches {
  Caller::Waits waits;
  std::size_t bytes = 0;
  std::vector<double> longest_calls;  ///< us, of each stretch
};

/// Does the helper's work for one stretch.
void stretch(Range range, Work work, Stretches& stretches) {
  const int call = work.call;
  const Time begun = monotonic_now();
  if (call == kSleeps) return std::this_thread::sleep_for(std::chrono::nanoseconds(kWithout));
  if (call == kComputes) {
    while (monotonic_now() - begun < kWithout) {
    }
    return;
  }
  static const PageFiles files;
  const OrdinarySlice slice;
  Duration longest = 0;
  for (Range rest = range; !rest.empty();) {
    const Range part{rest.begin, rest.begin + std::min(rest.bytes(), static_cast<std::size_t>(call) * kMiB)};
    const Time at = monotonic_now();
    stretches.bytes += collapse(part, files).bytes;
    longest = std::max(longest, monotonic_now() - at);
    rest.begin = part.end;
    if (work.pause > 0 && !rest.empty()) std::this_thread::sleep_for(std::chrono::nanoseconds(work.pause));
  }
  stretches.longest_calls.push_back(static_cast<double>(longest) / kMicrosecond);
}

void one_round(const Caller::Kind& kind, Work work, Caller& caller, Stretches& stretches) {
  const Memory memory;
  std::atomic<bool> done{false};
  RealClock clock;
  HelperBell bell;
  HelperThread helper(bell, clock);
  std::atomic<bool> calls{false};
  const Error failed = helper.start(
      [&] {
        while (!calls.load(std::memory_order_acquire)) std::this_thread::yield();
        const Time begun = monotonic_now();
        stretch(memory.range(), work, stretches);
        std::this_thread::sleep_for(std::chrono::nanoseconds((work.share - 1) * (monotonic_now() - begun)));
        done.store(true, std::memory_order_release);
      },
      [](pid_t) {});
  if (failed) fail(failed.message);
  calls.store(true, std::memory_order_release);
  caller.run(kind, memory.range(), done, stretches.waits);
  helper.join();
}

double at(std::vector<double>& samples, double share) {
  if (samples.empty()) return 0;
  const auto nth =
      samples.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), nth, samples.end());
  return *nth;
}

std::string name_of(int call) {
  return call == kSleeps ? "asleep" : call == kComputes ? "computes" : std::to_string(call) + " MiB a call";
}

void print(int busy, const char* kind, int call, Stretches& of) {
  auto& [wall, asleep] = of.waits;
  std::printf("| %d | %s | %s | %zu | %.1f / %.0f / %.0f | %.1f / %.0f / %.0f | %zu | %.0f / %.0f |\n", busy,
              kind, name_of(call).c_str(), wall.size(), at(wall, .5), at(wall, .99), at(wall, 1),
              at(asleep, .5), at(asleep, .99), at(asleep, 1), of.bytes / kMiB, at(of.longest_calls, .5),
              at(of.longest_calls, 1));
  std::fflush(stdout);
}

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) all.push_back(word);
  return all;
}

int main_of(int argc, char** argv) {
  int rounds = 25;
  Work work;
  std::string busy = "0,1,2", calls = "-1,0,2,8,16,32,64", waits = "write,fault,mmap+munmap,fork";
  const option options[] = {{"rounds", required_argument, nullptr, 'r'},
                            {"busy", required_argument, nullptr, 'b'},
                            {"calls", required_argument, nullptr, 'c'},
                            {"pause", required_argument, nullptr, 'p'},
                            {"share", required_argument, nullptr, 's'},
                            {"waits", required_argument, nullptr, 'w'},
                            {}};
  for (int chosen; (chosen = ::getopt_long(argc, argv, "", options, nullptr)) != -1;) {
    if (chosen == 'r')
      rounds = std::atoi(optarg);
    else if (chosen == 'b')
      busy = optarg;
    else if (chosen == 'c')
      calls = optarg;
    else if (chosen == 'p')
      work.pause = std::atol(optarg) * kMicrosecond;
    else if (chosen == 's')
      work.share = std::atoi(optarg);
    else if (chosen == 'w')
      waits = optarg;
    else
      return 2;
  }
  if (collapse_unit() == 0) {
    std::puts("no transparent hugepages here");
    return 77;
  }
  std::puts(
      "| busy | waits | helper | calls | wall, us: p50 / p99 / most | asleep: p50 / p99 / most | MiB | "
      "longest call, us: p50 / most |\n|---|---|---|---|---|---|---|---|");
  Caller caller;
  for (const std::string& count : words(busy)) {
    const Busy others(std::atoi(count.c_str()));
    for (const Caller::Kind& kind : Caller::kinds()) {
      const auto chosen = words(waits);
      if (std::find(chosen.begin(), chosen.end(), kind.name) == chosen.end()) continue;
      std::map<int, Stretches> by_call;
      for (int round = 0; round < rounds; ++round)
        for (const std::string& call : words(calls)) {
          work.call = std::atoi(call.c_str());
          one_round(kind, work, caller, by_call[work.call]);
        }
      for (auto& [call, of] : by_call) print(std::atoi(count.c_str()), kind.name, call, of);
    }
  }
  return 0;
}

}  // namespace
}  // namespace pinion::test

int main(int argc, char** argv) { return pinion::test::main_of(argc, argv); }
