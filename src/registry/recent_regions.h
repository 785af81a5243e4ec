// A thread's memory of where its ranges were found last: direct-mapped by the request's first byte. Owned and
// used by one thread, for any number of domains. A hint carries all that decides a hit beside the region's
// word (registry/region_leases.h), so a wrong one is found before the region is read.
#pragma once

#include <array>
#include <cstdint>

#include "base/access.h"
#include "base/range.h"
#include "registry/region.h"

namespace pinion {

/// A request that began at `begin` was served by `region`, which ends at `end`.
struct RegionHint {
  Address begin = 0;
  Address end = 0;
  /// RegionWord's proof. In its free bits: the rights of the region, above them the number of its domain.
  std::uint64_t proof = 0;
  Region* region = nullptr;

  static constexpr int kAccessBits = 4;
  static_assert(static_cast<unsigned>(Access::all) < 1u << kAccessBits);
  static constexpr std::uint64_t kDomains = std::uint64_t{1} << (RegionWord::kProofBits - kAccessBits);

  static std::uint64_t marks(std::uint64_t domain, Access access) {
    return domain << kAccessBits | static_cast<std::uint64_t>(access);
  }
  /// Whether the region serves the request, if it is still the same; it serves no empty one.
  bool serves(Range request, std::uint64_t domain, Access access) const {
    constexpr std::uint64_t kDomain = (kDomains - 1) << kAccessBits;
    return begin == request.begin && request.bytes() - 1 < end - begin &&
           ((proof ^ marks(domain, access)) & (kDomain | static_cast<std::uint64_t>(access))) == 0;
  }
};

class RecentRegions {
 public:
  const RegionHint& of(Address begin) const { return hints_[index(begin)]; }
  /// Fetches the line that a hit will change, while the caller still has other things to do: the helper, on
  /// another core, may have written it last.
  void prefetch(Address begin) const { __builtin_prefetch(of(begin).region, 1); }
  void remember(const RegionHint& hint) { hints_[index(hint.begin)] = hint; }

 private:
  static constexpr unsigned kBits = 10;
  static std::size_t index(Address begin) {
    return static_cast<std::size_t>((begin * 0x9E3779B97F4A7C15ull) >> (64 - kBits));
  }
  alignas(64) std::array<RegionHint, std::size_t{1} << kBits> hints_{};
};

}  // namespace pinion
