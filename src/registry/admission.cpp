#include "registry/admission.h"

#include <algorithm>
#include <string>

#include "base/size_text.h"

namespace pinion {

void Admission::take_capabilities() {
  const DeviceCapabilities capabilities = context_.device->capabilities();
  exact_rights_ = capabilities.remote;
  whole_requests_ = capabilities.hides_from_children;
  byte_ranges_ = capabilities.byte_ranges;
  caps_ = capabilities.caps;
}

std::size_t Admission::most_in_a_region() const {
  const std::size_t most = caps_.max_region_bytes;
  return most == 0 ? ~std::size_t{0} : std::max(page_floor(most), page_size());
}

// ---- room ----

bool Admission::device_has_room(Range want, const std::vector<Region*>& gone) const {
  const std::size_t regions = table_.count() - gone.size();
  if (caps_.max_regions != 0 && regions >= caps_.max_regions) return false;
  if (caps_.max_bytes == 0) return true;
  std::size_t bytes = table_.region_bytes() + want.bytes();
  for (const Region* region : gone) bytes -= region->range().bytes();
  return bytes <= caps_.max_bytes;
}

bool Admission::fits(Range want, std::uint64_t others, const std::vector<Region*>& gone) const {
  const Budget& budget = *context_.budget;
  return others + table_.reserved_bytes() + table_.unreserved(want) <= budget.desired_bytes() &&
         budget.regions() - gone.size() < budget.most_regions() && device_has_room(want, gone);
}

bool Admission::fits_twice(Range pages) const { return have_room(pages.bytes(), pages); }

bool Admission::within_limits(Range want) const { return have_room(table_.unreserved(want), want); }

bool Admission::have_room(std::size_t bytes, Range pages) const {
  const Budget& budget = *context_.budget;
  return budget.bytes() + bytes <= budget.most_bytes() && budget.regions() < budget.most_regions() &&
         device_has_room(pages);
}

bool Admission::could_ever_fit(Range want) const {
  const Budget& budget = *context_.budget;
  return want.bytes() <= budget.most_bytes() && budget.most_regions() != 0 &&
         (caps_.max_bytes == 0 || want.bytes() <= caps_.max_bytes);
}

bool Admission::room_is_coming(std::size_t bytes) const {
  Budget& budget = *context_.budget;
  const std::uint64_t most = budget.most_bytes();
  if (bytes > most) return false;
  std::uint64_t going = budget.leaving_bytes(), regions_going = budget.leaving_regions();
  if (regions_going == 0) return budget.ask_occupants(bytes);
  table_.for_each([&](const Region* region) {
    if (!region->word.load().idle()) return true;
    going += region->range().bytes();
    ++regions_going;
    return true;
  });
  const std::uint64_t held = budget.bytes(), regions = budget.regions();
  return (held - std::min(held, going) + bytes <= most &&
          regions - std::min(regions, regions_going) < budget.most_regions()) ||
         budget.ask_occupants(bytes);
}

void Admission::unreserve(Range pages, const Error& refusal) {
  const std::size_t bytes = table_.unreserve(pages);
  if (refusal.code == ENOMEM || refusal.code == EPERM)
    context_.budget->release_refused(bytes, refusal, context_.clock.now());
  else
    context_.budget->release(bytes, context_.clock.now());
}

// ---- refusals ----

namespace {

std::string regions_text(std::uint64_t n) { return std::to_string(n) + (n == 1 ? " region" : " regions"); }

}  // namespace

bool Admission::within_caps(Range want, Error& error) const {
  const std::size_t most = caps_.max_region_bytes;
  if (most == 0 || want.bytes() <= most) return true;
  error = Error::make(EFBIG,
                      "device %s registers at most %s in one region and %s are needed: the transfer goes "
                      "through a bounce buffer; use smaller messages or a device with a larger cap",
                      context_.device->name(), SizeText(most).text, SizeText(want.bytes()).text);
  return false;
}

Error Admission::limit_error(std::size_t needed) const {
  const Budget& budget = *context_.budget;
  if (const Error refusal = budget.refusal()) return refusal;
  const auto& limits = budget.limits();
  const std::uint64_t regions = budget.most_regions();
  return Error::make(
      ENOMEM,
      "registered memory is limited to %s (%s)%s; %s in %s are in use and %s more are needed: "
      "raise the limit",
      SizeText(limits.bytes).text, limits.bytes_from.c_str(),
      regions == UINT64_MAX ? ""
                            : (" and " + regions_text(regions) + " (" + budget.regions_from() + ")").c_str(),
      SizeText(budget.bytes()).text, regions_text(budget.regions()).c_str(), SizeText(needed).text);
}

Error Admission::device_limit_error(std::size_t needed) const {
  return Error::make(
      ENOMEM,
      "device %s registers at most %s in %s at a time; %s in %s are in use and %s more are "
      "needed: use fewer or smaller buffers at a time, or a device with larger caps",
      context_.device->name(), caps_.max_bytes ? SizeText(caps_.max_bytes).text : "any number of bytes",
      caps_.max_regions ? regions_text(caps_.max_regions).c_str() : "any number of regions",
      SizeText(table_.region_bytes()).text, regions_text(table_.count()).c_str(), SizeText(needed).text);
}

}  // namespace pinion
