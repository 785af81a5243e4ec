// Decides how much a domain may register: by the budget of the process and the caps of the device. Makes the
// error where they refuse. Owns the caps; reserves in the budget. Guarded by the domain's slow lock.
#pragma once

#include <cstdint>
#include <vector>

#include "registry/domain_context.h"
#include "registry/region_table.h"

namespace pinion {

class Admission {
 public:
  Admission(DomainContext& context, RegionTable& table) : context_(context), table_(table) {}

  void take_capabilities();
  /// Peers can get a key of the device: a registration has exactly the rights of its request.
  bool exact_rights() const { return exact_rights_; }
  /// A forked child may lack what is registered: a region has the memory of its request alone.
  bool whole_requests() const { return whole_requests_; }
  /// Registrations are ranges of bytes that never overlap.
  bool byte_ranges() const { return byte_ranges_; }
  /// Most bytes, of whole pages, that the device registers in one region.
  std::size_t most_in_a_region() const;

  /// Whether one region may be so large; `error` says why not.
  bool within_caps(Range want, Error& error) const;
  /// Whether the device takes one more region for `want`, once `gone` have been deregistered.
  bool device_has_room(Range want, const std::vector<Region*>& gone = {}) const;
  /// Whether the limits leave room for `want`, beside `others` bytes of the other domains, once `gone`, which
  /// the table's reserved pages leave out already, are deregistered.
  bool fits(Range want, std::uint64_t others, const std::vector<Region*>& gone = {}) const;
  bool fits(Range want) const { return fits(want, held_by_others()); }
  /// Like fits(), without the goal for the peak (peak_goal.h).
  bool within_limits(Range want) const;
  /// Like fits(), but for a second registration of pages, which the kernel counts once for each.
  bool fits_twice(Range pages) const;
  /// Whether `want` could fit if nothing else were registered.
  bool could_ever_fit(Range want) const;
  /// Bytes that the other domains of the process have reserved.
  std::uint64_t held_by_others() const { return context_.budget->bytes() - table_.reserved_bytes(); }
  /// Whether `bytes` in a region more fit when all regions have gone that are on their way out, or idle, or
  /// held by occupants that end soon (Budget::ask_occupants()).
  bool room_is_coming(std::size_t bytes) const;

  /// Reserves `bytes` in one region of the budget, or nothing.
  bool reserve(std::size_t bytes) { return context_.budget->reserve(bytes, context_.clock.now()); }
  /// Returns the reservation of pages that are unregistered (again), perhaps because the device was full
  /// (`refusal`).
  void unreserve(Range pages, const Error& refusal = {});

  Error limit_error(std::size_t needed) const;
  Error device_limit_error(std::size_t needed) const;

 private:
  /// Whether the limits leave room for a region more of `pages`, of which so many bytes are to be reserved.
  bool have_room(std::size_t bytes, Range pages) const;

  DomainContext& context_;
  RegionTable& table_;
  DeviceCaps caps_;  ///< of the device, as it was opened
  bool exact_rights_ = false;
  bool whole_requests_ = false;
  bool byte_ranges_ = false;
};

}  // namespace pinion
