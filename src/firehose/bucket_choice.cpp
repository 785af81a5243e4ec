#include "firehose/bucket_choice.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "device/translation.h"
#include "firehose/messages.h"

namespace pinion::firehose {

namespace {

constexpr std::size_t kUsual = std::size_t{64} << 10;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr std::size_t kHugepage = std::size_t{2} << 20;
/// Share of the process's limit that peers get.
constexpr std::uint64_t kPartOfLimit = 4;
constexpr std::uint64_t kMostByDefault = std::uint64_t{1} << 30;

bool is_in_hugepages(const struct pinion_range& segment) {
  const Range range = Range::of(segment.address, segment.bytes);
  const Range pages{page_ceil(range.begin), page_floor(range.end)};
  return pages.bytes() >= kHugepage &&
         translation_entries(pages, kHugepage | page_size()) < pages.bytes() / page_size();
}

}  // namespace

std::uint64_t memory_for_peers(const pinion_firehose_options& options) {
  if (options.memory) return options.memory;
  struct pinion_limits limits {};
  limits.size = sizeof limits;
  if (pinion_limits(&limits) != 0) return 0;
  return std::min(limits.bytes / kPartOfLimit, kMostByDefault);
}

bool is_bucket(std::uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= page_size() && bytes <= kMostBytes;
}

std::size_t suitable_bucket(std::uint64_t memory, Peer processes, bool in_hugepages) {
  const std::uint64_t most = memory / std::max<Peer>(1, processes - 1) / kMostMoved;
  const std::size_t wished = in_hugepages ? kHugepage : kUsual;
  return std::clamp<std::size_t>(std::bit_floor(most), page_size(), std::max(wished, page_size()));
}

std::uint64_t proposed_bucket(const pinion_firehose_options& options, Peer processes) {
  if (options.bucket) return options.bucket;
  const std::span segments(options.segments, options.segment_count);
  const bool in_hugepages =
      !segments.empty() && std::all_of(segments.begin(), segments.end(), is_in_hugepages);
  return suitable_bucket(memory_for_peers(options), processes, in_hugepages);
}

Error agreed_bucket(std::span<const std::uint64_t> proposals, std::uint64_t& bucket) {
  bucket = *std::min_element(proposals.begin(), proposals.end());
  if (is_bucket(bucket)) return {};
  return Error::make(EBADMSG,
                     "a process proposes buckets of %llu bytes: valid are powers of two from a page to 1 GiB",
                     static_cast<unsigned long long>(bucket));
}

}  // namespace pinion::firehose
