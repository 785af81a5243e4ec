// All-to-all: each process has a piece for each, and receives one from each. The heap holds the pieces that
// leave, then those that arrive.
#include <algorithm>
#include <cstring>

#include "clients.h"

namespace gas {

namespace {

/// Seed of the piece from one process to another in a round.
std::uint64_t name_of(unsigned from, unsigned to, unsigned round) {
  return (std::uint64_t{round} << 40 | std::uint64_t{from} << 20 | to) + 1;
}

void fill(std::byte* piece, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += sizeof name) {
    const std::uint64_t word = pattern_word(name, at);
    std::memcpy(piece + at, &word, std::min(sizeof word, bytes - at));
  }
}

bool is_filled(const std::byte* piece, std::size_t bytes, std::uint64_t name) {
  for (std::size_t at = 0; at < bytes; at += sizeof name) {
    const std::uint64_t word = pattern_word(name, at);
    if (std::memcmp(piece + at, &word, std::min(sizeof word, bytes - at)) != 0) return false;
  }
  return true;
}

}  // namespace

bool exchange(Job& job, const ExchangeOptions& options) {
  const unsigned n = job.processes(), self = job.self();
  const std::size_t piece = options.piece;
  const auto leaving = [&](unsigned to) { return to * piece; };
  const auto arriving = [&](unsigned from) { return (n + from) * piece; };
  job.open(2 * n * piece);
  bool right = true;
  job.begin();
  for (unsigned round = 0; round < options.rounds; ++round) {
    for (unsigned to = 0; to < n; ++to) fill(job.heap() + leaving(to), piece, name_of(self, to, round));
    job.barrier();
    for (unsigned i = 1; i <= n; ++i) {
      const unsigned peer = (self + i) % n;
      if (round % 2 == 0)
        job.put_implicit(peer, arriving(self), job.heap() + leaving(peer), piece);
      else
        job.get_implicit(peer, leaving(self), job.heap() + arriving(peer), piece);
    }
    job.end_implicit();
    job.barrier();
    for (unsigned from = 0; from < n; ++from)
      if (!is_filled(job.heap() + arriving(from), piece, name_of(from, self, round))) right = false;
  }
  job.end();
  return job.everywhere(right);
}

}  // namespace gas
