// The domains of one simulated process, with the device, the budget and the memory that they share: the real
// registry over a device that costs virtual time only. One thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/large_pages.h"
#include "device/model/model.h"
#include "monitor/brackets.h"
#include "node/node_share.h"
#include "predict/predictor.h"
#include "registry/budget.h"
#include "registry/domain.h"
#include "retention/desk.h"
#include "retention/shortage.h"
#include "simulate/observer.h"
#include "simulate/operation.h"
#include "simulate/process_settings.h"
#include "simulate/transparent_hugepages.h"

namespace pinion::simulate {

class Domains final : private RegisteredListener {
 public:
  struct OwnDomain {
    explicit OwnDomain(Domains& all) : domain(all.device_, all.budget_, all.brackets_, all.clock_, &all) {}
    Domain domain;
    KeptDomain kept;
  };

  /// All three outlive it.
  Domains(const ProcessSettings& settings, VirtualClock& clock, Observer& observer);

  /// Adds the next domain, which the desk decides about. The predictor is for retentions helper and observe.
  void add(std::unique_ptr<Predictor> predictor, Desk& desk);

  std::deque<OwnDomain>& all() { return domains_; }
  std::span<Domain* const> pointers() const { return pointers_; }
  OwnDomain& own(Range range) {
    return domains_[std::min<std::size_t>(domain_of(range), domains_.size() - 1)];
  }
  Domain& of(Range range) { return own(range).domain; }
  Domain& of(const Region* region) { return of(region->range()); }

  ModelDevice& device() { return device_; }
  TransparentHugepages& hugepages() { return hugepages_; }
  Budget& budget() { return budget_; }
  const Budget& budget() const { return budget_; }

  /// The memory there has pages of the system's size times 2^order.
  void note_pages(Range range, std::uint8_t order) {
    large_.add(in_large_pages(range, page_size() << order));
  }
  /// Empty where its pages have the system's size.
  LargeRange large_around(Range range) const { return large_.around(range); }

  /// The memory changes, as the hooks report it. Returns the bytes that the helper is to deregister.
  std::size_t change_memory(Range range);
  struct LetGo {
    std::uint64_t regions = 0;
    Duration takes = 0;
  };
  /// Deregisters all doomed and idle regions at once; the clock stays.
  LetGo let_all_go();

 private:
  void registered_changed(Time now, Time since, std::int64_t bytes, int regions) override;

  const ProcessSettings& settings_;
  VirtualClock& clock_;
  Observer& observer_;
  ModelDevice device_;
  TransparentHugepages hugepages_;
  std::optional<node::NodeShare> share_;
  Budget budget_;
  Brackets brackets_;
  LargePages large_;
  std::deque<OwnDomain> domains_;
  std::vector<Domain*> pointers_;
};

}  // namespace pinion::simulate
