#include "engine/birth_advice.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <string>
#include <utility>

#include "monitor/own_process.h"
#include "monitor/sandbox.h"
#include "monitor/system_call.h"

namespace pinion {

namespace {

/// How often since its start the system found no hugepage for memory that was to have one, or had to move
/// pages for it.
std::uint64_t troubles() {
  KernelText text("/proc/vmstat");
  std::uint64_t count = 0;
  for (std::string line; text.line(line);)
    for (const std::string name : {"thp_fault_fallback ", "compact_stall "})
      if (line.compare(0, name.size(), name) == 0) count += std::stoull(line.substr(name.size()));
  return count;
}

}  // namespace

void BirthAdvice::begin(const std::string& command, const std::string& directory) {
  if (unit_ == 0) return;
  earlier_.emplace(command, directory);
  for (const std::uint64_t bytes : earlier_->sizes()) know(bytes);
}

bool BirthAdvice::know(std::size_t bytes) {
  const std::size_t pages = bytes / page_size();
  if (bytes < kLeast || pages > kMostPages || knows(pages)) return false;
  for (auto& known : pages_) {
    std::size_t free = 0;
    if (!known.compare_exchange_strong(free, pages)) continue;
    troubles_ = troubles();
    return true;
  }
  return false;
}

bool BirthAdvice::knows(std::size_t pages) const {
  for (const auto& known : pages_)
    if (known.load(std::memory_order_relaxed) == pages) return true;
  return false;
}

void BirthAdvice::appeared(Range mapping) {
  if (unit_ == 0 || mapping.bytes() < kLeast || mapping.pages() > kMostPages || mapping.end > kMostAddress)
    return;
  const bool advised = knows(mapping.pages()) && advise(mapping);
  recent_[next_.fetch_add(1, std::memory_order_relaxed) % kRecent].store(word_of(mapping, advised),
                                                                         std::memory_order_relaxed);
}

bool BirthAdvice::advise(Range mapping) {
  if (stopped_.load(std::memory_order_relaxed) || has_new_filter()) return false;
  const long result =
      raw_system_call(SYS_madvise, arguments_of(mapping.begin, mapping.bytes(), MADV_HUGEPAGE));
  if (is_error(result)) return false;
  advised_bytes_.fetch_add(mapping.bytes(), std::memory_order_relaxed);
  return true;
}

void BirthAdvice::registered(Range range) {
  if (unit_ == 0 || range.bytes() < kLeast) return;
  for (auto& recent : recent_) {
    std::uint64_t word = recent.load(std::memory_order_relaxed);
    const Range mapping = mapping_of(word);
    // malloc has its header in front, and the rest of a page behind.
    if (!mapping.contains(range) || range.bytes() < mapping.bytes() - mapping.bytes() / 16) continue;
    if (!recent.compare_exchange_strong(word, 0) || has_new_filter()) return;
    if ((word & kAdvised) != 0)
      judge(mapping);
    else if (know(mapping.bytes()) && earlier_)
      earlier_->add(mapping.bytes());
    return;
  }
}

void BirthAdvice::judge(Range mapping) {
  const std::uint64_t now = troubles(), grown = now - std::exchange(troubles_, now);
  in_vain_ += grown > mapping.bytes() / unit_ / 8 ? 1 : in_vain_ > 0 ? -1 : 0;
  if (in_vain_ == kMostInVain) stopped_.store(true, std::memory_order_relaxed);
}

}  // namespace pinion
