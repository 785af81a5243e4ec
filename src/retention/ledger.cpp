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
  Terms terms;
  if (budget_) terms.price = budget_->price(), terms.twice_as_dear = budget_->twice_as_dear();
  terms.all_pages = buffers_.all_pages();
  terms.unseen = unseen_;
  terms.observed = costs_.registration.observed();
  if (terms == terms_) return;
  terms_ = terms;
  ++terms_number_;
}

void Ledger::learn_unseen(Buffer& buffer, Time now) {
  if (!buffer.late) return;
  buffer.late = false;
  unseen_ += (std::clamp<Duration>(now - buffer.busy_until, 0, least_patience()) - unseen_) / 8;
}

Duration Ledger::worth(std::size_t pages, std::size_t entries) const {
  const auto share = static_cast<double>(std::max(buffers_.all_pages(), pages)) / static_cast<double>(pages);
  const auto lost = static_cast<double>(costs_.registration.expected(entries));
  const double price = terms_.price * (1 + lost / terms_.twice_as_dear);
  return rounded(price * share * lost + static_cast<double>(unseen_));
}

Duration Ledger::worth_of_work(std::size_t pages, Duration work) const {
  const auto share = static_cast<double>(std::max(buffers_.all_pages(), pages)) / static_cast<double>(pages);
  const Duration lost = budget_ ? budget_->lost(work) : work;
  return rounded(TimeBudget::kPrice * share * static_cast<double>(lost));
}

bool Ledger::worth_registering(const Buffer& buffer, const Estimate& next) const {
  if (next.reuse == 1) return true;
  const double late = next.reuse * static_cast<double>(worth(buffer));
  return late >= (1 - next.reuse) * static_cast<double>(patience(buffer));
}

bool Ledger::affords(std::size_t pages, std::size_t entries, const Estimate& next, Time now) const {
  if (!budget_ || !budget_->binds_helper()) return true;
  const Duration goes = costs_.deregistration.expected(entries);
  // Such a region stays away.
  if (next.time == kNever) return budget_->affords(goes, kNever);
  return budget_->affords(goes + costs_.registration.expected(entries), freed(pages, gone_until(next) - now));
}

double Ledger::freed(std::size_t pages, Duration gone) const {
  const double part = static_cast<double>(pages) / static_cast<double>(std::max(buffers_.all_pages(), pages));
  return part * static_cast<double>(std::max<Duration>(gone, 0)) / kSecond;
}

Duration Ledger::more_reserved(const RegionRef& ref) const {
  Duration sum = 0;
  for (const BufferId id : buffers_.in(ref.region->range())) {
    const Buffer& buffer = buffers_[id];
    if (!buffer.served_elsewhere(ref)) sum += costs_.registration.upper(buffer.entries) - buffer.reserved;
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
    if (!buffer.served_elsewhere(ref)) buffer.reserved = costs_.registration.upper(buffer.entries);
  }
}

void Ledger::gone_for_peak(Buffer& buffer) {
  if (!budget_ || buffer.reserved != 0) return;
  buffer.reserved = costs_.registration.upper(buffer.entries);
  budget_->reserve_beyond(buffer.reserved);
}

void Ledger::give_back(Buffer& buffer) {
  PINION_ASSERT(budget_ || buffer.reserved == 0);
  if (buffer.reserved) budget_->give_back(buffer.reserved);
  buffer.reserved = 0;
}

}  // namespace pinion
