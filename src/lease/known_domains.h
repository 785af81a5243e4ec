// The domains of a run as transfers find them: by number, in one load. Owns the pointers; a domain is added
// before its number is given out, by the thread that opens it, and stays for the run. Any thread reads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "lease/domain_table.h"

namespace pinion {

/// What a hit on a region that is not settled leaves, as far as the run needs it.
enum class HitTrail : std::uint8_t {
  none,    ///< a count
  time,    ///< the time of its end, too: by it regions are chosen that go
  record,  ///< a record, from which retention learns, or which the log keeps
};

class KnownDomains {
 public:
  explicit KnownDomains(DomainTable& table) : table_(table) {}

  /// A slot that is about to be published.
  void add(const DomainSlot& slot, HitTrail trail) {
    const auto number = static_cast<std::size_t>(slot.number);
    observes_[number] = slot.kept.observed;
    trails_[number] = trail;
    domains_[number] = slot.domain.get();
    retentions_[number] = slot.kept.retention.get();
  }

  Domain& domain(int number) const { return *domains_[static_cast<std::size_t>(number)]; }
  Retention& retention(int number) const { return *retentions_[static_cast<std::size_t>(number)]; }
  /// Whether transfers of this domain are recorded only.
  bool observes(int number) const { return observes_[static_cast<std::size_t>(number)]; }
  HitTrail trail_of_hits(int number) const { return trails_[static_cast<std::size_t>(number)]; }
  int count() const { return table_.count(); }
  std::span<Domain* const> all() const { return {domains_.data(), static_cast<std::size_t>(count())}; }
  int number_of(const Domain* domain) const {
    return static_cast<int>(std::find(domains_.begin(), domains_.end(), domain) - domains_.begin());
  }
  DomainTable& table() const { return table_; }

 private:
  DomainTable& table_;
  std::array<bool, kMostDomains> observes_{};
  std::array<HitTrail, kMostDomains> trails_{};
  std::array<Domain*, kMostDomains> domains_{};
  std::array<Retention*, kMostDomains> retentions_{};
};

}  // namespace pinion
