#include "retention/ledger.h"

#include <bit>

namespace pinion {

namespace {
/// Keeps the four highest bits, so that small changes of the price leave the margins as they are.
Duration rounded(double value) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(value, 0.0, 1e17));
  const int rest = std::max(0, static_cast<int>(std::bit_width(whole)) - 4);
  return static_cast<Duration>(whole >> rest << rest);
}
}  // namespace

void Ledger::note_terms() {
  const Terms terms{price(), buffers_.all_pages(), unseen_, costs_.registration.observed()};
  if (terms == terms_) return;
  terms_ = terms;
  ++terms_number_;
}

void Ledger::learn_unseen(Buffer& buffer, Time now) {
  if (!buffer.late) return;
  buffer.late = false;
  unseen_ += (std::clamp<Duration>(now - buffer.busy_until, 0, kLeastPatience) - unseen_) / 8;
}

Duration Ledger::worth(std::size_t pages, std::size_t entries) const {
  const auto share = static_cast<double>(std::max(buffers_.all_pages(), pages)) / static_cast<double>(pages);
  return rounded(price() * share * static_cast<double>(costs_.registration.expected(entries)) +
                 static_cast<double>(unseen_));
}

bool Ledger::worth_registering(const Buffer& buffer, const Estimate& next) const {
  if (next.reuse == 1) return true;
  const double late = next.reuse * static_cast<double>(worth(buffer));
  return late >= (1 - next.reuse) * static_cast<double>(patience(buffer));
}

bool Ledger::affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const {
  if (!share_binds()) return true;
  const Duration work = costs_.deregistration.expected(entries) + costs_.registration.expected(entries);
  if (next.time == kNever) return share_->affords(work, kNever);
  return share_->affords(work, freed(pages, gone_until(next) - now));
}

bool Ledger::affords_by_thread(std::size_t pages, std::size_t entries, Duration worth, const Estimate& next,
                               Time now) const {
  if (next.time == kNever) return false;
  const Duration gone = gone_until(next) - now;
  return gone >= worth && share_->affords(costs_.deregistration.expected(entries), freed(pages, gone));
}

double Ledger::freed(std::size_t pages, Duration gone) const {
  const double part = static_cast<double>(pages) / static_cast<double>(std::max(buffers_.all_pages(), pages));
  return part * static_cast<double>(std::max<Duration>(gone, 0)) / kSecond;
}

Duration Ledger::more_reserved(const RegionRef& ref) const {
  Duration sum = 0;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    const Buffer& buffer = buffers_[id];
    if (!buffer.served_elsewhere(ref))
      sum += costs_.registration.upper(buffer.entries) - buffer.reserved.time;
  }
  return sum;
}

std::optional<Duration> Ledger::reserve(const RegionRef& ref) {
  if (!budget_) return 0;
  const Duration more = more_reserved(ref);
  if (!budget_->reserve(std::max<Duration>(more, 0))) return std::nullopt;
  return more;
}

void Ledger::cancel(Duration receipt) {
  if (budget_) budget_->give_back(std::max<Duration>(receipt, 0));
}

void Ledger::gone(const RegionRef& ref, Range pages, Duration receipt) {
  if (!budget_) return;
  budget_->give_back(std::max<Duration>(-receipt, 0));
  for (const BufferId id : buffers_.in(pages)) {
    Buffer& buffer = buffers_[id];
    if (buffer.served_elsewhere(ref)) continue;
    if (buffer.reserved.by_thread) budget_->leave_to_threads(-buffer.reserved.time);
    buffer.reserved.by_thread = false;
    buffer.reserved.time = costs_.registration.upper(buffer.entries);
  }
}

void Ledger::leave_to_threads(const RegionRef& ref) {
  for (const BufferId id : buffers_.in(ref.region->range())) {
    Buffer& buffer = buffers_[id];
    if (buffer.served_elsewhere(ref)) continue;
    buffer.reserved.by_thread = true;
    if (budget_) budget_->leave_to_threads(buffer.reserved.time);
  }
}

void Ledger::give_back(Buffer& buffer) {
  PINION_ASSERT(budget_ || buffer.reserved.time == 0);
  if (buffer.reserved.time && buffer.reserved.by_thread) budget_->leave_to_threads(-buffer.reserved.time);
  if (buffer.reserved.time) budget_->give_back(buffer.reserved.time);
  buffer.reserved.time = 0;
}

}  // namespace pinion
