#include "runlog/held_after.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace pinion::runlog {

namespace {

/// At one instant deregistrations come first, and registrations before uses.
enum class What : std::uint8_t { deregistered, registered, used };

struct Moment {
  Time time;
  What what;
  const Event* event;

  bool operator<(const Moment& other) const {
    return time != other.time ? time < other.time : what < other.what;
  }
};

std::vector<Moment> moments_of(const Log& log) {
  std::vector<Moment> moments;
  for (const Event& e : log.events) {
    if (e.flags & kFailed) continue;
    if (e.kind == EventKind::registration) moments.push_back({e.begin_ns, What::registered, &e});
    if (e.kind == EventKind::deregistration) moments.push_back({e.end_ns, What::deregistered, &e});
    if (uses_of(e) > 0) moments.push_back({e.begin_ns, What::used, &e});
  }
  std::sort(moments.begin(), moments.end());
  return moments;
}

class Holdings {
 public:
  void add(const Moment& moment) {
    const Event& e = *moment.event;
    const Place place{e.domain, e.address};
    if (moment.what == What::registered) {
      regions_.insert_or_assign(place, Region{e.bytes, moment.time, {}});
      return;
    }
    const auto found = region_of(place);
    if (found == regions_.end()) return;
    if (moment.what == What::used) {
      use(found->second, {e.site, e.call}, moment.time);
    } else {
      credit(found->second, moment.time);
      regions_.erase(found);
    }
  }

  std::map<SiteCall, double> end(Time time) {
    for (auto& [place, region] : regions_) credit(region, time);
    return std::move(held_);
  }

 private:
  using Place = std::pair<std::uint8_t, std::uint64_t>;  ///< domain and address
  struct Region {
    std::uint64_t bytes;
    Time since;
    std::optional<SiteCall> user;
  };
  using Regions = std::map<Place, Region>;

  /// The region with that place in it.
  Regions::iterator region_of(Place place) {
    auto found = regions_.upper_bound(place);
    if (found == regions_.begin()) return regions_.end();
    --found;
    const auto& [domain, address] = found->first;
    return domain == place.first && place.second - address < found->second.bytes ? found : regions_.end();
  }

  void use(Region& region, SiteCall user, Time time) {
    if (!region.user) region.user = user;
    credit(region, time);
    region.user = user;
  }

  void credit(Region& region, Time time) {
    if (region.user && time > region.since)
      held_[*region.user] += static_cast<double>(region.bytes) * static_cast<double>(time - region.since);
    region.since = std::max(region.since, time);
  }

  Regions regions_;
  std::map<SiteCall, double> held_;
};

}  // namespace

std::map<SiteCall, double> held_after(const Log& log) {
  if (!log.all_events()) return {};
  Holdings holdings;
  for (const Moment& moment : moments_of(log)) holdings.add(moment);
  return holdings.end(log.last_ns());
}

}  // namespace pinion::runlog
