// `pinion bench gather`: lists of scattered pieces, put to another process in each way that a plan may
// choose, and by the plan (src/gather/gather_plan.h). Posting and completion are timed apart. The paper's
// Figures 3 and 4 beside ours.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/range.h"
#include "bench/api.h"
#include "bench/bench.h"
#include "bench/gather_peer.h"
#include "transfer/endpoint/gather_probe.h"
#include "transfer/endpoint/list_puts.h"

namespace pinion::cli {

namespace {

using transfer::LocalMemory;
using transfer::RemoteMemory;

constexpr std::size_t kMostPieces = 128, kMostBytes = std::size_t{64} << 10;
constexpr std::size_t kAllBytes = kMostPieces * kMostBytes;
constexpr std::size_t kPagesAPiece = 17;  // pieces of any size lie so far apart
constexpr unsigned kTransfers = 9;        // of one sample

struct Case {
  std::size_t pieces, bytes, offset;
};

struct Times {
  double post = 0, complete = 0;
  double all() const { return post + complete; }
};

enum class Way { each_a_request, in_place, packed, planned };
constexpr struct {
  Way way;
  const char* name;
} kWays[] = {{Way::each_a_request, "request-each"},
             {Way::in_place, "in-place"},
             {Way::packed, "packed"},
             {Way::planned, "pinion"}};
/// The ways take turns. A transfer finds caches and the kernel as the one before left them, so the first of
/// each turn is left out, and each way follows each other one once.
constexpr std::size_t kTurns[] = {0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3};

/// Registered memory of this process: pieces, then the packed buffer.
class Source {
 public:
  explicit Source(pinion_domain* domain) {
    void* const map = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) throw Failure("no memory");
    memory_ = static_cast<char*>(map);
    std::memset(memory_, 1, bytes());
    must(pinion_acquire(domain, memory_, bytes(), PINION_ACCESS_READ, &lease_));
    keys_.size = sizeof keys_;
    must(pinion_lease_keys(&lease_, &keys_));
  }
  ~Source() {
    static_cast<void>(pinion_release(&lease_));
    ::munmap(memory_, bytes());
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  char* piece(std::size_t i) const { return memory_ + i * kPagesAPiece * page_size(); }
  char* packed() const { return piece(kMostPieces); }
  static std::size_t packed_bytes() { return kAllBytes + page_size(); }
  void* descriptor() const { return keys_.descriptor; }

 private:
  static std::size_t bytes() { return kMostPieces * kPagesAPiece * page_size() + packed_bytes(); }
  char* memory_ = nullptr;
  pinion_lease lease_ = PINION_LEASE_INIT;
  struct pinion_keys keys_ {};
};

class Measurement {
 public:
  Measurement(Bench& bench, GatherTarget& target)
      : bench_(bench), target_(target), source_(target.endpoint().domain()) {
    if (const Error error = measure_gather_costs(target.endpoint(), target.peer(), target.memory(), costs_))
      throw Failure(error.message);
    bench.note(fmt::format(
        "{}: {} elements a request; a further request costs {:.0f} ns, of 128 KiB {:.0f} ns more, "
        "2 and 4 elements {:.0f} "
        "and {:.0f} ns, "
        "a copied piece {:.1f} ns and {:.3f} ns a byte; packed at offset {}.",
        target.endpoint().capabilities().provider, costs_.max_elements, costs_.request_ns,
        costs_.large_request_ns, costs_.elements_ns[0], costs_.elements_ns[1], costs_.copied_piece_ns,
        costs_.copied_byte_ns, costs_.packed_offset));
  }

  void lists(std::size_t pieces, std::size_t bytes) {
    const Case one{pieces, bytes, 64};
    const std::string name = fmt::format("{}x{}", pieces, bytes);
    bench_.step(name);
    std::vector<Times> times[std::size(kWays)];
    std::vector<double> ratios;
    for (unsigned round = 0; round <= bench_.rounds(); ++round) {
      const auto samples = medians(one);
      if (round == 0) continue;
      for (std::size_t i = 0; i < samples.size(); ++i) times[i].push_back(samples[i]);
      ratios.push_back(samples[3].all() / std::min(samples[1].all(), samples[2].all()));
    }
    for (std::size_t i = 0; i < std::size(kWays); ++i) add(name, kWays[i].name, times[i]);
    const std::vector<Times>& in_place = times[1];
    if (pieces == 1) ones_[bytes] = in_place;
    std::vector<double> of_one, post_of_one;
    for (std::size_t i = 0; i < in_place.size(); ++i) {
      of_one.push_back(in_place[i].all() / ones_[bytes][i].all());
      post_of_one.push_back(in_place[i].post / ones_[bytes][i].post);
    }
    bench_.add(name, "in-place", "of_one", "of one piece", of_one);
    bench_.add(name, "in-place", "post_of_one", "of one piece", post_of_one);
    bench_.add(name, "pinion", "of_better", "of the better of in-place and packed", ratios);
  }

  void offset(std::size_t offset) {
    std::vector<Times> times;
    for (unsigned round = 0; round <= bench_.rounds(); ++round) {
      std::vector<Times> samples;
      for (unsigned i = 0; i < kTransfers; ++i) samples.push_back(once({1, 64, offset}, Way::in_place));
      if (round > 0) times.push_back(median(samples));
    }
    add(fmt::format("offset-{}", offset), "in-place", times);
  }

 private:
  void add(const std::string& name, const char* subject, const std::vector<Times>& times) {
    std::vector<double> post, complete, all;
    for (const Times& one : times) {
      post.push_back(one.post);
      complete.push_back(one.complete);
      all.push_back(one.all());
    }
    bench_.add(name, subject, "ns", "ns", all);
    bench_.add(name, subject, "post_ns", "ns", post);
    bench_.add(name, subject, "complete_ns", "ns", complete);
  }

  static Times median(std::vector<Times>& samples) {
    std::sort(samples.begin(), samples.end(),
              [](const Times& a, const Times& b) { return a.all() < b.all(); });
    return samples[samples.size() / 2];
  }

  /// Returns the median times of each way, which take turns.
  std::array<Times, std::size(kWays)> medians(const Case& one) {
    std::array<std::vector<Times>, std::size(kWays)> samples;
    while (samples[0].size() < kTransfers)
      for (const std::size_t way : kTurns) {
        static_cast<void>(once(one, kWays[way].way));
        samples[way].push_back(once(one, kWays[way].way));
      }
    std::array<Times, std::size(kWays)> times;
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = median(samples[i]);
    return times;
  }

  /// The elements; planning and copying are a part of the post's time.
  std::size_t plan(const Case& one, Way way) {
    pieces_.clear();
    for (std::size_t i = 0; i < one.pieces; ++i)
      pieces_.push_back({source_.piece(i) + one.offset, one.bytes});
    if (way == Way::packed) {
      elements_[0] = {source_.packed() + costs_.packed_offset, one.pieces * one.bytes, 0, one.pieces, 0};
      must(pinion_gather_pack(pieces_.data(), elements_, 1));
      return 1;
    }
    pinion_gather_costs costs = costs_;
    if (way == Way::each_a_request) costs.max_elements = 1;
    std::size_t count = kMostPieces;
    must(pinion_gather_plan(&costs, pieces_.data(), pieces_.size(),
                            way == Way::planned ? source_.packed() : nullptr, Source::packed_bytes(),
                            elements_, &count));
    must(pinion_gather_pack(pieces_.data(), elements_, count));
    return count;
  }

  Times once(const Case& one, Way way) {
    const Time begin = monotonic_now();
    transfer::ListPuts puts(target_.endpoint());
    const std::size_t count = plan(one, way);
    RemoteMemory to = target_.memory();
    for (std::size_t i = 0; i < count;) {
      const std::size_t request = elements_[i].request;
      list_.clear();
      std::size_t bytes = 0;
      for (; i < count && elements_[i].request == request; ++i) {
        list_.push_back({const_cast<void*>(elements_[i].address), elements_[i].bytes, source_.descriptor()});
        bytes += elements_[i].bytes;
      }
      if (const Error error = puts.post(target_.peer(), list_, to)) throw Failure(error.message);
      to.address += bytes;
    }
    const Time middle = monotonic_now();
    if (!puts.wait()) throw Failure("a put failed");
    return {static_cast<double>(middle - begin), static_cast<double>(monotonic_now() - middle)};
  }

  Bench& bench_;
  GatherTarget& target_;
  const Source source_;
  pinion_gather_costs costs_{};
  std::map<std::size_t, std::vector<Times>> ones_;  ///< of one piece in place, by its bytes
  std::vector<pinion_range> pieces_;
  pinion_gather_element elements_[kMostPieces];
  std::vector<LocalMemory> list_;
};

void measure(Bench& bench, const std::string& provider) {
  std::unique_ptr<GatherTarget> target;
  try {
    target = make_gather_peer(provider, kAllBytes);
  } catch (const Failure& failure) {
    throw UsageError(fmt::format("bench gather: {}", failure.what()));
  }
  bench.set_provider(target->endpoint().capabilities().provider);
  Measurement measurement(bench, *target);
  const bool full = bench.options().full;
  for (std::size_t pieces = 1; pieces <= kMostPieces; pieces *= full || pieces == 64 ? 2 : 4)
    for (std::size_t bytes = 8; bytes <= kMostBytes; bytes *= full ? 4 : 16) measurement.lists(pieces, bytes);
  for (const std::size_t offset : {0, 1, 8, 32, 64, 128, 512}) measurement.offset(offset);
}

void run(Bench& bench) {
  const BenchOptions& options = bench.options();
  if (options.wire_bytes_per_second > 0) throw UsageError("bench gather has no --wire");
  std::vector<std::string> providers{options.provider.empty() ? "tcp;ofi_rxm" : options.provider};
  if (options.full && options.provider.empty()) providers = {"shm", "tcp;ofi_rxm", "sockets"};
  for (const std::string& provider : providers) measure(bench, provider);
  bench.set_provider("eHCA");
  bench.add("4x128", "paper", "of_one", "of one piece", {1.14});
  bench.add("128x128", "paper", "post_of_one", "of one piece", {3});
  bench.add("offsets", "paper", "spread", "share", {0.08});
  bench.note(
      "PIECESxBYTES: pieces in pages of their own, put to contiguous memory of another process of this node. "
      "request-each: a put for each piece; in-place: lists as long as the provider takes; packed: copied, "
      "one "
      "put; pinion: the plan, its making included. offset-N: one piece of 64 bytes at N in its page. A "
      "sample "
      "is the median of nine puts; the ways take turns.");
  bench.note("paper: hugepages-data-placement-2006, Figures 3 and 4, eHCA; its best offset is 64.");
}

const BenchRegistration registration{"gather", "Lists of scattered pieces: in place, packed, and planned",
                                     run, kTakesNetwork, 3};

}  // namespace

}  // namespace pinion::cli
