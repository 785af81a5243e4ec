// The clients. Each opens the job, moves its data by puts, gets and atomics of firehose, and returns whether
// the answer is right in all processes. `--puts` is a least number for all processes together; a client
// repeats its work until it is reached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "job.h"

namespace gas {

struct CannonOptions {
  std::uint64_t puts = 2000;
  std::size_t block = 64;    ///< rows and columns of a process's block
  std::size_t piece = 1024;  ///< bytes of a put
};
/// Multiplies matrices on the largest square of processes by Cannon's algorithm.
bool cannon(Job& job, const CannonOptions& options);

struct BitonicOptions {
  std::uint64_t puts = 2000;
  std::size_t keys = 16384;  ///< of a process
  std::size_t piece = 1024;
};
/// Sorts keys on the largest power of two of processes by Batcher's bitonic sort.
bool bitonic(Job& job, const BitonicOptions& options);

struct RandomPutOptions {
  std::uint64_t puts = 8000;  ///< for each set
  std::vector<std::size_t> sets{1 << 16,
                                1 << 20};  ///< bytes of each process that are put to, one set after another
  bool one_way = false;                    ///< process 0 alone puts, the others sleep
};
/// Measurements of a set.
struct RandomPutSet {
  std::size_t bytes = 0;
  double latency_us = 0, p99_us = 0, hit_rate = 0;
};
/// Puts words of 8 bytes to random places.
bool random_put(Job& job, const RandomPutOptions& options, std::vector<RandomPutSet>& measured);

struct HashTableOptions {
  std::size_t keys = 500;  ///< inserted by each process; half of them by all processes
};
/// A distributed hash table: compare-swap takes a slot, a put fills it, gets look up.
bool hash_table(Job& job, const HashTableOptions& options);

struct ExchangeOptions {
  std::size_t piece = std::size_t{2} << 20;
  unsigned rounds = 2;
};
/// All-to-all: by puts in even rounds, by gets in odd ones.
bool exchange(Job& job, const ExchangeOptions& options);

}  // namespace gas
