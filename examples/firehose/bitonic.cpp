// Batcher's bitonic sort: each process holds sorted keys; in each step it puts them to a partner, and keeps
// the lower or the upper half of both.
#include <algorithm>
#include <bit>

#include "clients.h"

namespace gas {

namespace {

using Key = std::uint64_t;

class Bitonic {
 public:
  Bitonic(Job& job, const BitonicOptions& options)
      : job_(job), options_(options), bytes_(options.keys * sizeof(Key)), merged_(options.keys) {}

  /// Two inboxes in turn: a partner may be one step ahead.
  static std::size_t heap_bytes(const BitonicOptions& options) { return 3 * options.keys * sizeof(Key); }

  void load(std::uint64_t round) {
    for (std::size_t i = 0; i < options_.keys; ++i)
      keys()[i] = pattern_word(round, job_.self() * options_.keys + i);
    std::sort(keys(), keys() + options_.keys);
  }
  void give(unsigned partner) {
    for (std::size_t at = 0; at < bytes_; at += options_.piece)
      job_.put(partner, inbox() + at, job_.heap() + at, std::min(options_.piece, bytes_ - at));
    job_.fence();
  }
  void take(bool lower) {
    const Key* const own = keys();
    const Key* const theirs = job_.at<Key>(inbox());
    const std::size_t n = options_.keys;
    if (lower) {
      for (std::size_t i = 0, a = 0, b = 0; i < n; ++i)
        merged_[i] = own[a] <= theirs[b] ? own[a++] : theirs[b++];
    } else {
      for (std::size_t i = n, a = n, b = n; i-- > 0;)
        merged_[i] = own[a - 1] >= theirs[b - 1] ? own[--a] : theirs[--b];
    }
    std::copy(merged_.begin(), merged_.end(), keys());
    turn_ = 1 - turn_;
  }

  /// Sorted across processes, and the same keys as at the start: compares sums of the keys and of a hash.
  bool is_right(std::uint64_t round, unsigned active) {
    struct Summary {
      Key first, last, sum, hashes, sum_before, hashes_before;
    } own{};
    const bool idle = job_.self() >= active;
    bool right = true;
    if (!idle) {
      own.first = keys()[0];
      own.last = keys()[options_.keys - 1];
      right = std::is_sorted(keys(), keys() + options_.keys);
      for (std::size_t i = 0; i < options_.keys; ++i) {
        own.sum += keys()[i];
        own.hashes += pattern_word(1, keys()[i]);
        const Key before = pattern_word(round, job_.self() * options_.keys + i);
        own.sum_before += before;
        own.hashes_before += pattern_word(1, before);
      }
    }
    Summary all{};
    const std::vector<Summary> parts = job_.gather(own);
    for (unsigned i = 0; i < active; ++i) {
      if (i > 0 && parts[i].first < parts[i - 1].last) right = false;
      all.sum += parts[i].sum - parts[i].sum_before;
      all.hashes += parts[i].hashes - parts[i].hashes_before;
    }
    return right && all.sum == 0 && all.hashes == 0;
  }

 private:
  Key* keys() const { return job_.at<Key>(0); }
  std::size_t inbox() const { return (1 + turn_) * bytes_; }

  Job& job_;
  const BitonicOptions& options_;
  const std::size_t bytes_;
  std::vector<Key> merged_;
  unsigned turn_ = 0;
};

}  // namespace

bool bitonic(Job& job, const BitonicOptions& options) {
  const unsigned active = std::bit_floor(job.processes());
  const unsigned stages = static_cast<unsigned>(std::bit_width(active)) - 1;
  const std::uint64_t pieces = (options.keys * sizeof(Key) + options.piece - 1) / options.piece;
  const std::uint64_t puts = pieces * active * (stages * (stages + 1) / 2);
  const std::uint64_t rounds = puts == 0 ? 1 : std::max<std::uint64_t>(1, (options.puts + puts - 1) / puts);
  const bool idle = job.self() >= active;
  job.open(Bitonic::heap_bytes(options));
  Bitonic part(job, options);
  bool right = true;
  job.begin();
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (!idle) part.load(round);
    for (unsigned size = 2; size <= active; size *= 2)
      for (unsigned distance = size / 2; distance > 0; distance /= 2) {
        const unsigned partner = job.self() ^ distance;
        const bool ascending = (job.self() & size) == 0;
        if (!idle) part.give(partner);
        job.barrier();
        if (!idle) part.take((job.self() < partner) == ascending);
      }
    if (!part.is_right(round, active)) right = false;
  }
  job.end();
  return job.everywhere(right);
}

}  // namespace gas
