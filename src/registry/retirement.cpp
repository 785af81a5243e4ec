#include "registry/retirement.h"

#include <algorithm>

#include "base/assert.h"

namespace pinion {

namespace {
/// Between two tries to deregister memory: the first wait, and the longest.
constexpr Duration kFirstRetry = 10 * kMillisecond, kLastRetry = kSecond;
}  // namespace

bool Retirement::claim(Region* region) {
  if (!region->word.try_retire()) return false;
  claimed(region);
  return true;
}

void Retirement::claimed(Region* region) {
  PINION_ASSERT(region->word.load().state() == RegionState::retiring);
  table_.hide(region);
  leaving_.fetch_add(1, std::memory_order_relaxed);
  context_.budget->leaves(region->range().bytes());
}

void Retirement::departed(Range pages) {
  leaving_.fetch_sub(1, std::memory_order_release);
  context_.budget->left(pages.bytes());
}

Region* Retirement::next_due() {
  Region* region = nullptr;
  if (context_.clock.now() >= retry_due_.load(std::memory_order_relaxed)) {
    region = unretired_.back();
    unretired_.pop_back();
    if (unretired_.empty()) retry_due_.store(kNeverRetried, std::memory_order_relaxed);
  } else {
    region = doomed_.next();
  }
  if (region) claimed(region);
  return region;
}

void Retirement::finish(Region* region) {
  PINION_ASSERT(region->word.load().state() == RegionState::retiring && !region->place.indexed);
  const Range pages = region->range();
  const auto bytes = static_cast<std::int64_t>(table_.count_deregistered(pages));
  const Time now = context_.clock.now();
  if (context_.listener) context_.listener->registered_changed(now, now, -bytes, -1);
  admission_.unreserve(pages);
  if (unretired_.empty()) retry_wait_ = 0;
  departed(pages);
  region->word.set_free();
  table_.put(region);
}

void Retirement::fail(Region* region) {
  departed(region->range());
  unretired_.push_back(region);
  retry_wait_ = std::clamp(2 * retry_wait_, kFirstRetry, kLastRetry);
  retry_due_.store(context_.clock.now() + retry_wait_, std::memory_order_relaxed);
}

void Retirement::retry_now() {
  if (!unretired_.empty()) retry_due_.store(0, std::memory_order_relaxed);
}

}  // namespace pinion
