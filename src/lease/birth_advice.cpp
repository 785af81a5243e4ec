#include "lease/birth_advice.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <algorithm>
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

void BirthAdvice::begin(std::size_t unit, const std::string& command, const std::string& directory) {
  unit_ = 0;
  earlier_.reset();
  for (Recent& recent : recent_) recent.word = 0, recent.time = 0;
  for (Size& size : sizes_) {
    size.pages = 0, size.unregistered = 0, size.allowed = 0;
    size.is_sparse = false, size.registered = 0, size.most_at_once = 0;
  }
  stopped_ = false, wholly_ = false, advised_bytes_ = 0, in_vain_ = 0;
  if (unit == 0) return;
  may_have_tails_ = !has_address_limit() && !charges_untouched_memory();
  earlier_.emplace(command, directory);
  for (const auto& [bytes, at_once, wholly] : earlier_->sizes()) {
    if (wholly) wholly_ = true;
    Size* const size = bytes < kLeast ? nullptr : make(bytes / page_size());
    if (size == nullptr) continue;
    size->is_sparse = at_once == 0;
    size->allowed.store(static_cast<int>(at_once), std::memory_order_relaxed);
  }
  unit_ = unit;
}

BirthAdvice::Size* BirthAdvice::find(std::size_t pages) {
  const auto found = std::ranges::find_if(
      sizes_, [pages](const Size& size) { return size.pages.load(std::memory_order_relaxed) == pages; });
  return found == sizes_.end() ? nullptr : &*found;
}

BirthAdvice::Size* BirthAdvice::make(std::size_t pages) {
  if (Size* const known = find(pages)) return known;
  Size* const size = pages > kMostPages ? nullptr : find(0);
  if (size == nullptr) return nullptr;
  troubles_ = troubles();
  size->unregistered.store(unregistered(pages), std::memory_order_relaxed);
  size->pages.store(pages, std::memory_order_relaxed);
  return size;
}

MappingWish BirthAdvice::wish(std::size_t bytes) {
  const std::size_t unit = unit_;
  if (unit == 0 || bytes < kLeast) return {};
  const Size* const size = find(bytes / page_size());
  if (size == nullptr || !may_advise(*size, size->unregistered.load(std::memory_order_relaxed)) ||
      has_new_filter())
    return {};
  const std::size_t tail = (unit - bytes % unit) % unit;
  return {unit, may_have_tails_ && wholly_.load(std::memory_order_relaxed) && tail * kTailPart <= bytes};
}

void BirthAdvice::appeared(Range mapping, Range tail) {
  if (unit_ == 0 || mapping.bytes() < kLeast || mapping.pages() > kMostPages || mapping.end > kMostAddress)
    return;
  bool advised = false;
  if (Size* const size = find(mapping.pages())) {
    const int others = size->unregistered.fetch_add(1, std::memory_order_relaxed);
    advised = may_advise(*size, others) && advise({mapping.begin, std::max(mapping.end, tail.end)});
  }
  Recent& recent = recent_[next_.fetch_add(1, std::memory_order_relaxed) % kRecent];
  recent.time.store(ticks_now(), std::memory_order_relaxed);
  recent.word.store(word_of(mapping, advised), std::memory_order_relaxed);
}

bool BirthAdvice::advise(Range mapping) {
  if (has_new_filter()) return false;
  const long result =
      raw_system_call(SYS_madvise, arguments_of(mapping.begin, mapping.bytes(), MADV_HUGEPAGE));
  if (is_error(result)) return false;
  advised_bytes_.fetch_add(mapping.bytes(), std::memory_order_relaxed);
  return true;
}

BirthAdvice::Recent* BirthAdvice::recent(Range range, Ticks time) {
  Recent* last = nullptr;
  Ticks appeared = 0;
  for (Recent& one : recent_) {
    const Ticks then = one.time.load(std::memory_order_relaxed);
    if (then > time || then < appeared) continue;
    if (!mapping_of(one.word.load(std::memory_order_relaxed)).contains(range)) continue;
    last = &one;
    appeared = then;
  }
  return last;
}

int BirthAdvice::unregistered(std::size_t pages) const {
  return static_cast<int>(std::ranges::count_if(recent_, [pages](const Recent& one) {
    const std::uint64_t word = one.word.load(std::memory_order_relaxed);
    return (word & kMostPages) == pages && (word & kRegistered) == 0;
  }));
}

void BirthAdvice::registered(Range range, Ticks begun, bool wholly) {
  if (unit_ == 0 || range.bytes() < kLeast) return;
  if (wholly) wholly_.store(true, std::memory_order_relaxed);
  Recent* const one = recent(range, begun);
  if (one == nullptr) return;
  std::uint64_t word = one->word.load(std::memory_order_relaxed);
  const Range mapping = mapping_of(word);
  // malloc has its header in front, and the rest of a page behind.
  if ((word & kRegistered) != 0 || range.bytes() < mapping.bytes() - mapping.bytes() / 16) return;
  if (has_new_filter()) return;
  Size* const size = make(mapping.pages());
  if (size == nullptr || !one->word.compare_exchange_strong(word, word | kRegistered)) return;
  const int at_once = size->unregistered.fetch_sub(1, std::memory_order_relaxed);
  size->most_at_once = std::max(size->most_at_once, at_once);
  const int allowed = std::min<int>(size->registered++, KnownMappings::kMostAtOnce);
  if (!size->is_sparse && allowed > size->allowed.load(std::memory_order_relaxed))
    size->allowed.store(allowed, std::memory_order_relaxed);
  if ((word & kAdvised) != 0) judge(mapping);
}

void BirthAdvice::end() {
  if (!earlier_ || has_new_filter()) return;
  for (const Size& size : sizes_) {
    const std::size_t bytes = size.pages.load(std::memory_order_relaxed) * page_size();
    const int unregistered = size.unregistered.load(std::memory_order_relaxed);
    const bool whole = unregistered * kTolerated <= size.registered;
    if (size.registered > 0)
      earlier_->keep({bytes, whole ? static_cast<unsigned>(size.most_at_once) : 0, wholly_});
    else if (unregistered > 0)
      earlier_->forget(bytes);
  }
}

void BirthAdvice::judge(Range mapping) {
  const std::uint64_t now = troubles(), grown = now - std::exchange(troubles_, now);
  in_vain_ += grown > mapping.bytes() / unit_ / 8 ? 1 : in_vain_ > 0 ? -1 : 0;
  if (in_vain_ == kMostInVain) stopped_.store(true, std::memory_order_relaxed);
}

BirthAdvice& birth_advice() {
  static BirthAdvice& advice = *new BirthAdvice;  // until the end
  return advice;
}

}  // namespace pinion
