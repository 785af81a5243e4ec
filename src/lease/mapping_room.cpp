#include "lease/mapping_room.h"

#include <algorithm>
#include <fstream>

#include "monitor/mapping_reader.h"

namespace pinion {

namespace {

constexpr std::uint64_t kMappingsOfRegion = 2;  ///< that it adds
constexpr std::uint64_t kPartOfRest = 4;

std::uint64_t read_most() {
  constexpr std::uint64_t kUsual = 65530;
  std::uint64_t most = 0;
  return std::ifstream("/proc/sys/vm/max_map_count") >> most ? most : kUsual;
}

std::uint64_t count_mappings() {
  std::uint64_t count = 0;
  for_each_mapping({0, ~Address{0}}, [&](const Mapping&) { ++count; });
  return count;
}

}  // namespace

std::uint64_t regions_for_mappings(std::uint64_t most, std::uint64_t now, std::uint64_t held) {
  const std::uint64_t programs = now - std::min(now, kMappingsOfRegion * held);
  return (most - std::min(most, programs)) / kPartOfRest / kMappingsOfRegion;
}

void MappingRoom::look() {
  constexpr std::uint64_t kFewRegions = 16;
  const std::uint64_t held = budget_.regions();
  if (held < kFewRegions) return;
  const MutexLock lock(mutex_);
  const std::uint64_t now = mappings();
  budget_.bound_regions(std::max(kFewRegions, regions_for_mappings(most_, now, held)));
}

bool MappingRoom::is_short() {
  const MutexLock lock(mutex_);
  const std::uint64_t now = mappings();
  return now > most_ - most_ / 4;
}

std::uint64_t MappingRoom::mappings() {
  if (most_ == 0) most_ = read_most();
  return mappings_.found(count_mappings);
}

}  // namespace pinion
