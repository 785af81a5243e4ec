// Words of 8 bytes put to random places of random peers. A word belongs to one writer, so the last put to it
// is known: at the end each process replays all writers' puts, and compares its whole heap.
#include <time.h>

#include <algorithm>
#include <stdexcept>

#include "clients.h"

namespace gas {

namespace {

using Word = std::uint64_t;

/// The puts of one process to one set, in order.
class Writer {
 public:
  Writer(unsigned process, unsigned processes, std::size_t set, std::size_t bytes)
      : process_(process),
        processes_(processes),
        name_(pattern_word(process + 1, set)),
        words_(bytes / sizeof(Word) / processes) {}

  struct Put {
    unsigned to;
    std::size_t offset;
    Word value;
  };
  Put next() {
    const Word random = pattern_word(name_, 2 * number_), place = pattern_word(name_, 2 * number_ + 1);
    ++number_;
    auto to = static_cast<unsigned>(random % (processes_ - 1));
    if (to >= process_) ++to;
    return {to, (place % words_ * processes_ + process_) * sizeof(Word), pattern_word(~name_, number_) | 1};
  }

 private:
  const unsigned process_, processes_;
  const Word name_;
  const std::size_t words_;
  Word number_ = 0;
};

/// Waits until process 0 puts a word there.
void sleep_until_set(const volatile Word* word) {
  const timespec pause{0, 1'000'000};
  while (*word == 0) ::nanosleep(&pause, nullptr);
}

}  // namespace

bool random_put(Job& job, const RandomPutOptions& options, std::vector<RandomPutSet>& measured) {
  const unsigned n = job.processes();
  if (n < 2) throw std::runtime_error("random-put needs two processes");
  const std::size_t largest = *std::max_element(options.sets.begin(), options.sets.end());
  const unsigned writers = options.one_way ? 1 : n;
  const std::uint64_t puts = (options.puts + writers - 1) / writers;
  job.open(largest + sizeof(Word));
  std::map<std::string, double> before;
  job.begin();
  for (std::size_t set = 0; set < options.sets.size(); ++set) {
    job.barrier();
    job.clear_latencies();
    Writer writer(job.self(), n, set, options.sets[set]);
    for (std::uint64_t i = 0; i < puts && job.self() < writers; ++i) {
      const Writer::Put put = writer.next();
      job.put_word(put.to, put.offset, put.value);
    }
    job.fence();
    if (options.one_way) continue;
    Latencies latencies = job.latencies();
    auto figures = job.figures();
    const double hits = figures["hits"] - before["hits"], all = figures["puts"] - before["puts"];
    measured.push_back(
        {options.sets[set], latencies.mean_us(), latencies.share_us(0.99), all > 0 ? hits / all : 0});
    before = std::move(figures);
  }
  if (options.one_way && job.self() > 0) sleep_until_set(job.at<Word>(largest));
  if (options.one_way && job.self() == 0)
    for (unsigned peer = 1; peer < n; ++peer) job.put_word(peer, largest, 1);
  job.end();

  std::vector<Word> expected(largest / sizeof(Word));
  for (unsigned process = 0; process < writers; ++process)
    for (std::size_t set = 0; set < options.sets.size(); ++set) {
      Writer writer(process, n, set, options.sets[set]);
      for (std::uint64_t i = 0; i < puts; ++i)
        if (const Writer::Put put = writer.next(); put.to == job.self())
          expected[put.offset / sizeof(Word)] = put.value;
    }
  return job.everywhere(std::equal(expected.begin(), expected.end(), job.at<Word>(0)));
}

}  // namespace gas
