#include "bench/allocators.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <random>
#include <sstream>

#include "base/clock.h"
#include "cli/doctor/monitors.h"
#include "cli/run/launch.h"
#include "cli/run/log_directory.h"
#include "cli/system_files.h"

namespace pinion::cli {

namespace {

struct Allocator {
  const char* name;
  std::string preload;
  Environment variables;
  const char* library;  ///< part of the file name that malloc must come from

  Environment environment() const {
    Environment all = variables;
    all["LD_PRELOAD"] = preload;
    all.emplace("PINION", "");
    return all;
  }
};

std::string pattern_program() { return (installation() / "libexec" / "pinion" / "allocations").string(); }

/// The use of a process: for one step of a pattern, or for a whole program.
struct Sample {
  double time = 0, cpu = 0, mib = 0;
};

/// Empty where the process has another allocator: the library is missing.
std::optional<Sample> run_pattern(const Allocator& allocator, const std::string& pattern,
                                  const char* seconds) {
  Sample sample;
  double bytes = 0;
  std::string library;
  std::istringstream answer(output_of({pattern_program(), pattern, seconds}, allocator.environment()));
  if (!(answer >> sample.time >> sample.cpu >> bytes >> library) ||
      library.find(allocator.library) == std::string::npos)
    return {};
  sample.mib = bytes / (1 << 20);
  return sample;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

/// Empty where it fails.
std::optional<Sample> run_program(const Allocator& allocator, const CommandLine& command) {
  const Time begin = monotonic_now();
  const pid_t child = ::fork();
  if (child == 0) {
    const int nowhere = ::open("/dev/null", O_RDWR);
    for (const int file : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, file);
    ::_exit(execute(command, allocator.environment()));
  }
  int status = -1;
  rusage usage{};
  if (child < 0 || ::wait4(child, &status, 0, &usage) != child || status != 0) return {};
  return Sample{static_cast<double>(monotonic_now() - begin) / kSecond,
                seconds(usage.ru_utime) + seconds(usage.ru_stime),
                static_cast<double>(usage.ru_maxrss) / 1024};
}

struct Units {
  const char *time, *cpu, *unit;
};
constexpr Units kOfSteps{"ns", "cpu_ns", "ns"}, kOfPrograms{"s", "cpu_s", "s"};

/// Measures the allocators by turns. `measure(allocator)` returns a Sample, or nothing.
template <class Measure>
void compare(Bench& bench, const std::vector<Allocator>& allocators, const std::string& name,
             const Units& units, Measure&& measure) {
  std::vector<std::vector<Sample>> samples(allocators.size());
  for (unsigned round = 0; round < bench.rounds(); ++round)
    for (std::size_t i = 0; i < allocators.size(); ++i) {
      bench.step(fmt::format("{}, round {} of {}: {}", name, round + 1, bench.rounds(), allocators[i].name));
      if (const std::optional<Sample> sample = measure(allocators[i])) samples[i].push_back(*sample);
    }
  for (std::size_t i = 0; i < allocators.size(); ++i) {
    if (samples[i].empty()) {
      bench.note(fmt::format("{} failed under {}", name, allocators[i].name));
      continue;
    }
    const auto add = [&](const char* metric, const char* unit, double Sample::*figure) {
      std::vector<double> values;
      for (const Sample& sample : samples[i]) values.push_back(sample.*figure);
      bench.add(name, allocators[i].name, metric, unit, values);
    };
    add(units.time, units.unit, &Sample::time);
    add(units.cpu, units.unit, &Sample::cpu);
    add("resident_peak", "MiB", &Sample::mib);
  }
}

void measure_patterns(Bench& bench, const std::vector<Allocator>& allocators) {
  for (const char* pattern : {"general", "general-2-threads", "churn", "churn-2-threads", "cleared"})
    compare(bench, allocators, pattern, kOfSteps,
            [&](const Allocator& allocator) { return run_pattern(allocator, pattern, "0.2"); });
  bench.note(
      "A step frees a random block, allocates another and writes to each of its pages. general: 16 B to 512 "
      "KiB, one in a hundred from the heap's threshold on; churn: 256 KiB to 16 MiB; cleared: 5 to 25 MiB, "
      "all bytes written. cpu leaves out the time that others had the core.");
}

/// Lines of random numbers.
std::string write_numbers(const std::string& directory, const std::string& name, std::size_t lines) {
  const std::string path = directory + "/" + name;
  std::ofstream file(path);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < lines; ++i) file << random() << '\n';
  return path;
}

std::string write_source(const std::string& directory) {
  const std::string path = directory + "/source.cpp";
  std::ofstream(path) << "#include <algorithm>\n#include <functional>\n#include <iostream>\n#include <map>\n"
                         "#include <regex>\n#include <string>\nint main(int n, char** text) {\n"
                         "  std::map<std::string, int> words;\n  for (int i = 0; i < n; ++i)\n"
                         "    if (std::regex_match(text[i], std::regex(\"[a-z]+\"))) ++words[text[i]];\n"
                         "  for (const auto& [word, count] : words) std::cout << word << count;\n}\n";
  return path;
}

/// Programs of Debian and Ubuntu that allocate much.
void measure_programs_of_system(Bench& bench, const std::vector<Allocator>& allocators) {
  const TemporaryLogDirectory directory;
  const std::string numbers = write_numbers(directory.path(), "many", 2'000'000);
  const std::string few = write_numbers(directory.path(), "few", 200'000);
  const std::pair<const char*, CommandLine> programs[] = {
      {"sort", {"sort", "-S", "512M", "--parallel=2", numbers}},
      {"xz", {"xz", "-9", "--threads=1", "--keep", "--stdout", few}},
      {"python3",
       {"python3", "-c",
        "import random; random.seed(1); d = {}\n"
        "for i in range(60000): d[i % 512] = [bytearray(random.randrange(200000)), [str(i)] * 50]"}},
      {"g++", {"g++", "-std=c++17", "-O2", "-c", "-o", "/dev/null", write_source(directory.path())}}};
  for (const auto& [name, command] : programs) {
    if (!run_program(allocators.front(), command)) {
      bench.note(fmt::format("{} is not installed, or fails", name));
      continue;
    }
    compare(bench, allocators, name, kOfPrograms,
            [&](const Allocator& allocator) { return run_program(allocator, command); });
  }
  bench.note(
      "sort, xz, python3, g++: whole programs of the system. sort: two million numbers in memory; xz: 2 MB "
      "at its highest level; python3: arrays up to 200 kB that replace each other; g++: a source "
      "with <regex>.");
}

}  // namespace

void measure_allocators(Bench& bench) {
  if (::access(pattern_program().c_str(), X_OK) != 0) return bench.note(pattern_program() + " is missing");
  std::vector<Allocator> allocators{
      {"glibc", "", {}, "libc.so"},
      {"glibc-thp", "", {{"GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"}}, "libc.so"},
      {"jemalloc", "libjemalloc.so.2", {}, "jemalloc"},
      {"mimalloc", "libmimalloc.so.2", {}, "mimalloc"},
      {"pinion", heap_library(), {{"PINION", "hugepages=yes"}}, "pinion-heap"},
  };
  std::erase_if(allocators, [&](const Allocator& allocator) {
    // The dynamic linker only reports a preload that is missing, and goes on.
    if (run_pattern(allocator, "general", "0")) return false;
    bench.note(fmt::format("{} is not installed", allocator.name));
    return true;
  });
  measure_patterns(bench, allocators);
  measure_programs_of_system(bench, allocators);
}

}  // namespace pinion::cli
