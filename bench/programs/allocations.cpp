// One pattern of allocations, with the allocator that this process has: allocations PATTERN SECONDS, after
// five times as many seconds of the same. Prints nanoseconds a step, those that the step's thread was on a
// processor, the most bytes that were resident, and the library that malloc is from. For `pinion bench
// placement`.
#include <dlfcn.h>
#include <sys/resource.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

/// A step frees a random slot's block and allocates another of a random size, writing to each of its pages.
struct Pattern {
  const char* name;
  std::size_t slots;
  std::size_t (*bytes)(std::mt19937&);
  unsigned threads;
  bool clears = false;  ///< each byte instead
};

std::size_t between(std::mt19937& random, std::size_t least, std::size_t most) {
  return least + random() % (most - least);
}
/// Draws a size: 94 of a hundred are below 1 KiB, five below the heap's threshold of 32 KiB, one above.
std::size_t general(std::mt19937& random) {
  const unsigned share = random() % 100;
  return share < 94   ? between(random, 16, 1024)
         : share < 99 ? between(random, 1024, 32 << 10)
                      : between(random, 32 << 10, 512 << 10);
}
std::size_t large(std::mt19937& random) { return between(random, 256 << 10, 16 << 20); }
/// Draws the size of an image, a matrix or a message.
std::size_t buffer(std::mt19937& random) { return between(random, 5 << 20, 25 << 20); }

constexpr Pattern kPatterns[] = {
    {"general", 10000, general, 1},    {"general-2-threads", 10000, general, 2}, {"churn", 24, large, 1},
    {"churn-2-threads", 24, large, 2}, {"cleared", 20, buffer, 1, true},
};

using Clock = std::chrono::steady_clock;

double own_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e9 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec);
}

struct StepTimes {
  double ns = 0, cpu_ns = 0;
};

void run(const Pattern& pattern, unsigned seed, double seconds, StepTimes* times) {
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::mt19937 random(seed);
  std::vector<char*> slots(pattern.slots);
  const auto step = [&] {
    char*& slot = slots[random() % slots.size()];
    std::free(slot);
    const std::size_t bytes = pattern.bytes(random);
    slot = static_cast<char*>(std::malloc(bytes));
    if (slot == nullptr) std::abort();
    if (pattern.clears) std::memset(slot, 0, bytes);
    for (std::size_t at = 0; at < bytes && !pattern.clears; at += 4096) slot[at] = 1;
  };
  // Fills the slots and lets the allocator grow first: fresh memory costs all allocators the same.
  const Clock::time_point warm = Clock::now() + 5 * length;
  for (std::size_t i = 0; i < 4 * pattern.slots || Clock::now() < warm; ++i) step();
  std::size_t steps = 0;
  const double cpu_begin = own_cpu_ns();
  const auto begin = Clock::now(), end = begin + length;
  Clock::time_point now = begin;
  while (now < end || steps == 0) {
    for (int i = 0; i < 16; ++i, ++steps) step();
    now = Clock::now();
  }
  const auto count = static_cast<double>(steps);
  *times = {std::chrono::duration<double, std::nano>(now - begin).count() / count,
            (own_cpu_ns() - cpu_begin) / count};
  for (char* block : slots) std::free(block);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Pattern& pattern : kPatterns) {
    if (argc != 3 || std::strcmp(argv[1], pattern.name) != 0) continue;
    std::vector<StepTimes> times(pattern.threads);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < pattern.threads; ++i)
      threads.emplace_back(run, std::cref(pattern), i, std::atof(argv[2]), &times[i]);
    for (std::thread& thread : threads) thread.join();
    StepTimes sum;
    for (const StepTimes& one : times) sum = {sum.ns + one.ns, sum.cpu_ns + one.cpu_ns};
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    Dl_info info{};
    ::dladdr(::dlsym(RTLD_DEFAULT, "malloc"), &info);
    std::printf("%.3f %.3f %ld %s\n", sum.ns / pattern.threads, sum.cpu_ns / pattern.threads,
                usage.ru_maxrss * 1024, info.dli_fname);
    return 0;
  }
  std::fprintf(stderr, "usage: allocations PATTERN SECONDS\n");
  return 2;
}
