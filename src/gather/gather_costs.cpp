#include "gather/gather_costs.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/clock.h"
#include "base/range.h"
#include "gather/gather_plan.h"

namespace pinion {

namespace {

constexpr unsigned kRounds = 21;
/// After so much time, in ns, rounds are enough as they are.
constexpr double kLongest = 20e6, kLongestOfLarge = 100e6;
constexpr std::size_t kWord = 8;
constexpr unsigned kRequests = 8, kLargeRequests = 4;

/// The offset at which data lay best in hugepages-data-placement-2006 (Figure 4).
constexpr std::size_t kUsualOffset = 64;
constexpr std::array<std::size_t, 4> kOtherOffsets = {0, 8, 128, 1024};
/// Another offset has to be better by more than what medians differ anyhow.
constexpr double kClearly = 0.95;

double median(std::vector<double>& samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

/// A transfer that is tried again and again, by turns with the others.
struct Trial {
  unsigned requests, elements;
  std::size_t offset, bytes = kWord;
  std::vector<double> samples = {};
};

Error try_all(const pinion_gather_probe& probe, std::vector<Trial>& trials, double longest) {
  double spent = 0;
  // The first round warms up: connections, registrations, pages.
  for (unsigned round = 0; round <= kRounds && (round < 2 || spent < longest); ++round)
    for (Trial& trial : trials) {
      const double ns =
          probe.transfer(probe.context, trial.requests, trial.elements, trial.bytes, trial.offset);
      if (!(ns >= 0)) return Error::make(EIO, "a transfer of the probe failed");
      if (round == 0) continue;
      trial.samples.push_back(ns);
      spent += ns;
    }
  return {};
}

/// Copies `count` pieces of `bytes`, each from a page of its own, into one buffer. In ns, the best of some.
double packing_ns(const char* pages, char* to, std::size_t count, std::size_t bytes) {
  Ticks best = ~Ticks{0};
  for (unsigned round = 0; round < kRounds; ++round) {
    const Ticks begin = ticks_now();
    for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * bytes, pages + i * page_size(), bytes);
    asm volatile("" : : "r"(to) : "memory");
    best = std::min(best, ticks_now() - begin);
  }
  return static_cast<double>(calibration().to_duration(best));
}

void measure_copying(pinion_gather_costs& costs) {
  constexpr std::size_t kPieces = 64;
  const std::size_t bytes = kPieces * page_size();
  void* const memory = ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {  // slow, and sure
    costs.copied_piece_ns = 100;
    costs.copied_byte_ns = 1;
    return;
  }
  auto* const pages = static_cast<char*>(memory);
  std::memset(pages, 1, 2 * bytes);
  const double words = packing_ns(pages, pages + bytes, kPieces, kWord);
  const double whole = packing_ns(pages, pages + bytes, kPieces, page_size());
  costs.copied_piece_ns = words / kPieces;
  costs.copied_byte_ns = std::max(0.0, whole - words) / static_cast<double>(bytes);
  ::munmap(memory, 2 * bytes);
}

double least(const std::vector<double>& samples) { return *std::min_element(samples.begin(), samples.end()); }

/// Times the same bytes in some requests and in one. Of few rounds, the best ones are least disturbed.
Error measure_large_requests(const pinion_gather_probe& probe, pinion_gather_costs& costs) {
  constexpr std::size_t kBytes = kLargeRequests * kLargeRequest;
  const auto allows = [](std::size_t limit) { return limit == 0 || limit >= kBytes; };
  costs.large_request_ns = 0;
  if (probe.max_bytes < kBytes || !allows(probe.max_element_bytes) || !allows(probe.max_request_bytes))
    return {};
  std::vector<Trial> trials = {{kLargeRequests, 1, kUsualOffset, kLargeRequest},
                               {1, 1, kUsualOffset, kBytes}};
  if (Error error = try_all(probe, trials, kLongestOfLarge)) return error;
  const double further = (least(trials[0].samples) - least(trials[1].samples)) / (kLargeRequests - 1);
  costs.large_request_ns = std::max(0.0, further - costs.request_ns);
  return {};
}

}  // namespace

Error measure_requests(const pinion_gather_probe& probe, pinion_gather_costs& costs) {
  costs.max_elements = probe.max_elements;
  costs.max_element_bytes = probe.max_element_bytes;
  costs.max_request_bytes = probe.max_request_bytes;
  std::vector<Trial> trials = {{1, 1, kUsualOffset}, {kRequests, 1, kUsualOffset}};
  for (const std::size_t offset : kOtherOffsets) trials.push_back({1, 1, offset});
  const std::size_t lists = trials.size();
  for (std::size_t i = 0; i < std::size(costs.elements_ns) && std::size_t{2} << i <= probe.max_elements; ++i)
    trials.push_back({1, 2u << i, kUsualOffset});
  if (Error error = try_all(probe, trials, kLongest)) return error;

  const double one = median(trials[0].samples);
  costs.request_ns = std::max(0.0, median(trials[1].samples) - one) / (kRequests - 1);
  double last = 0, slope = costs.request_ns;
  for (std::size_t i = 0; i < std::size(costs.elements_ns); ++i) {
    const auto further = static_cast<double>(std::size_t{1} << i);
    // More elements are never cheaper. Beyond the device's most, the last slope goes on.
    if (lists + i < trials.size())
      slope = std::max(0.0, median(trials[lists + i].samples) - one - last) / further;
    costs.elements_ns[i] = last += slope * further;
  }
  double best = one * kClearly;
  costs.packed_offset = kUsualOffset;
  for (std::size_t i = 0; i < kOtherOffsets.size(); ++i) {
    const double ns = median(trials[2 + i].samples);
    if (ns >= best) continue;
    best = ns;
    costs.packed_offset = kOtherOffsets[i];
  }
  return measure_large_requests(probe, costs);
}

Error measure_gather(const pinion_gather_probe& probe, pinion_gather_costs& costs) {
  measure_copying(costs);
  return measure_requests(probe, costs);
}

}  // namespace pinion
