// The common parts of the examples: options, a computation of known length, message contents that can be
// checked, and one line at the end with the verdict on the answer. The examples are plain MPI programs,
// independent of Pinion. Everything is called from the main thread, between construction
// and destruction of Mpi.
#pragma once

#include <mpi.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>

namespace example {

class Mpi {
 public:
  Mpi(int& argc, char**& argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
  }
  ~Mpi() { MPI_Finalize(); }
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  int rank = 0;
  int size = 0;
};

// Every rank finds the same fault, so one rank reports it and all leave with status 2.
inline int usage_error(const Mpi& mpi, const CLI::App& app, const std::string& what) {
  if (mpi.rank == 0) std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), what.c_str());
  return 2;
}

// The exit status if the program should end here, empty if it should go on.
inline std::optional<int> parse(const Mpi& mpi, CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    if (mpi.rank == 0) std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    return usage_error(mpi, app, error.what());
  }
  return std::nullopt;
}

// `17K`, `1M`: powers of 1024, at most the largest MPI count.
inline void add_size(CLI::App& app, const std::string& flag, std::size_t& bytes, const std::string& text) {
  app.add_option(flag, bytes, text)
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30))
      ->capture_default_str();
}

// A number that must carry one of these units; the variable holds the product.
inline void add_number(CLI::App& app, const std::string& flag, double& value, const std::string& text,
                       std::map<std::string, double> units, double largest, const std::string& shown) {
  auto multiply = [units = std::move(units)](std::string& input) -> std::string {
    char* unit = nullptr;
    const double number = std::strtod(input.c_str(), &unit);
    const auto found = units.find(unit);
    if (unit == input.c_str() || found == units.end()) {
      std::string fault = input + " is not a number with a unit:";
      for (const auto& [name, factor] : units) fault += " " + name;
      return fault;
    }
    input = CLI::detail::to_string(number * found->second);
    return {};
  };
  app.add_option(flag, value, text)
      ->transform(CLI::Validator(multiply, "", "unit"))
      ->check(CLI::Range(0.0, largest))
      ->default_str(shown);
}

// `20ms`: the variable holds seconds.
inline void add_duration(CLI::App& app, const std::string& flag, double& seconds, const std::string& text) {
  add_number(app, flag, seconds, text, {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1.0}}, 3600,
             CLI::detail::to_string(seconds * 1e3) + "ms");
}

// `5%`: the variable holds 0.05.
inline void add_share(CLI::App& app, const std::string& flag, double& share, const std::string& text) {
  add_number(app, flag, share, text, {{"%", 0.01}}, 1, CLI::detail::to_string(share * 100) + "%");
}

inline void add_count(CLI::App& app, const std::string& flag, int& count, const std::string& text) {
  app.add_option(flag, count, text)->check(CLI::Range(1, 1'000'000))->capture_default_str();
}

// The computation between two messages: keeps the core busy, as a real one would, until the given
// MPI_Wtime().
inline void compute_until(double deadline) {
  while (MPI_Wtime() < deadline) {
  }
}

struct Free {
  void operator()(std::byte* pointer) const { std::free(pointer); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;

// Starts on a page of its own, so that each buffer has its own registration.
inline Buffer page_aligned_buffer(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* pointer = static_cast<std::byte*>(std::aligned_alloc(page, (bytes + page - 1) / page * page));
  if (pointer == nullptr) throw std::bad_alloc();
  return Buffer(pointer);
}

// Word `index` of the message called `name`. Any two names differ in every word, so a stale, shifted or torn
// buffer cannot pass for the right one. (splitmix64's finaliser.)
inline std::uint64_t pattern_word(std::uint64_t name, std::size_t index) {
  std::uint64_t z = name * 0x9e3779b97f4a7c15u + index;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline void fill_pattern(std::byte* data, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(name, at);
    std::memcpy(data + at, &word, std::min(sizeof word, bytes - at));
  }
}

inline bool has_pattern(const std::byte* data, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(name, at);
    if (std::memcmp(data + at, &word, std::min(sizeof word, bytes - at)) != 0) return false;
  }
  return true;
}

// Collective. Reports whether the answer was right on every rank, and returns the program's exit status.
inline int conclude(const Mpi& mpi, const CLI::App& app, bool right_here) {
  int right = right_here ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
  if (mpi.rank == 0) std::printf("%s: %s\n", app.get_name().c_str(), right ? "verified" : "FAILED");
  return right ? 0 : 1;
}

}  // namespace example
