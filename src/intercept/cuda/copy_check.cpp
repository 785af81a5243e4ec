#include "intercept/cuda/copy_check.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/mix.h"
#include "base/warning.h"
#include "intercept/cuda/kept.h"
#include "intercept/cuda/shadow.h"

namespace pinion::cuda {

namespace {

/// The most that is brought back at a time.
constexpr std::size_t kPiece = std::size_t{16} << 20;
/// Differences that are said one by one. The report counts all.
constexpr int kMostSaid = 10;

/// A copy is checked if its random number is below this.
constinit std::atomic<std::uint64_t> g_below{0};
constinit std::atomic<std::uint64_t> g_copies{0};
constinit std::atomic<int> g_said{0};
[[gnu::tls_model("initial-exec")]] constinit thread_local Duration t_took = 0;

class Timed {
 public:
  ~Timed() { t_took += monotonic_now() - begin_; }

 private:
  const Time begin_ = monotonic_now();
};

bool choose() {
  const std::uint64_t below = g_below.load(std::memory_order_relaxed);
  if (below == 0) return false;
  // Copies may take turns: every hundredth of them would be the same few.
  return mix(0, g_copies.fetch_add(1, std::memory_order_relaxed)) <= below;
}

std::uint64_t hash_of(const char* bytes, std::size_t count) {
  std::uint64_t hash = count, word = 0;
  for (; count >= sizeof word; bytes += sizeof word, count -= sizeof word) {
    std::memcpy(&word, bytes, sizeof word);
    hash = mix(hash, word);
  }
  word = 0;
  std::memcpy(&word, bytes, count);
  return mix(hash, word);
}

}  // namespace

void check_copies(double share) {
  constexpr double kAll = 0x1p64;
  g_below.store(share <= 0             ? 0
                : share * kAll >= kAll ? ~std::uint64_t{0}
                                       : static_cast<std::uint64_t>(share * kAll),
                std::memory_order_relaxed);
}

CopyCheck::CopyCheck(const Driver& driver, const LinearCopy& copy)
    : driver_(driver), copy_(copy), chosen_(choose()) {
  if (!chosen_ || copy_.direction != Direction::to_device) return;
  const Timed timed;
  host_ = hash_of_host();
}

void CopyCheck::finish(runlog::CopyWay way) {
  if (!chosen_) return;
  const Timed timed;
  if (copy_.direction == Direction::from_device) host_ = hash_of_host();
  const Found found = compare();
  if (found == Found::unclear) return;
  copy_counters().add_verdict(found == Found::different);
  if (found == Found::equal || g_said.fetch_add(1, std::memory_order_relaxed) >= kMostSaid) return;
  const bool in = copy_.direction == Direction::to_device;
  warn(
      "a copy brought other bytes (%s, cuMemcpy%s%s): %zu bytes, host %p, device %#llx; the first at byte "
      "%zu",
      way == runlog::CopyWay::staged ? "staged" : "registered", in ? "HtoD" : "DtoH",
      copy_.async ? "Async" : "", copy_.bytes, copy_.host, copy_.device, first_other_);
}

CopyCheck::Found CopyCheck::compare() {
  const Kept<Shadow> ours(std::min(copy_.bytes, kPiece));
  if (!*ours) return Found::unclear;
  for (std::size_t at = 0; at < copy_.bytes; at += kPiece) {
    const Found found =
        compare_piece(static_cast<char*>(ours->memory()), at, std::min(kPiece, copy_.bytes - at));
    if (found != Found::equal) return found;
  }
  return Found::equal;
}

CopyCheck::Found CopyCheck::compare_piece(char* ours, std::size_t at, std::size_t bytes) {
  const char* const host = static_cast<const char*>(copy_.host) + at;
  if (!fetch(ours, at, bytes)) return Found::unclear;
  if (std::memcmp(ours, host, bytes) == 0) return Found::equal;
  const std::uint64_t device = hash_of(ours, bytes);
  if (!fetch(ours, at, bytes) || hash_of(ours, bytes) != device || hash_of_host() != host_)
    return Found::unclear;
  first_other_ = at + static_cast<std::size_t>(std::mismatch(ours, ours + bytes, host).first - ours);
  return Found::different;
}

bool CopyCheck::fetch(char* ours, std::size_t at, std::size_t bytes) const {
  // The driver waits for a copy into pageable memory.
  return driver_.copy_out_async(ours, copy_.device + at, bytes, copy_.stream) == kSuccess;
}

std::uint64_t CopyCheck::hash_of_host() const {
  return hash_of(static_cast<const char*>(copy_.host), copy_.bytes);
}

Duration time_of_checks() { return t_took; }

}  // namespace pinion::cuda
