#include <algorithm>
#include <unordered_map>

#include "papers/patterns/pattern.h"
#include "simulate/random.h"

namespace pinion::simulate {

namespace {

std::uint64_t hash_of(const Program& program) {
  std::uint64_t hash = 0;
  const auto add = [&](auto value) { hash = seed_of(hash, static_cast<std::uint64_t>(value)); };
  for (const ThreadProgram& thread : program.threads) {
    add(thread.turns);
    for (const auto* part : {&thread.before, &thread.turn, &thread.after}) {
      add(part->size());
      for (const Operation& operation : *part) {
        add(operation.range.begin), add(operation.range.end), add(operation.site);
        add(operation.messages);
        add(operation.compute), add(operation.transfer);
      }
    }
  }
  return hash;
}

}  // namespace

Workload pattern_workload(const Pattern& pattern, std::uint64_t turns, Placement placement,
                          const Machine& machine) {
  Workload workload;
  workload.pattern = pattern.name;
  workload.placement = std::move(placement);
  std::unordered_multimap<std::uint64_t, std::uint32_t> known;
  std::vector<RankMessages> coupled;
  for (int rank = 0; rank < pattern.ranks; ++rank) {
    ProgramBuilder builder(rank, workload.placement, machine);
    pattern.write(builder, turns ? turns : pattern.turns);
    Program program = builder.finish();
    coupled.push_back(builder.take_coupling());
    const std::uint64_t hash = hash_of(program);
    const auto [first, last] = known.equal_range(hash);
    const auto same = std::find_if(
        first, last, [&](const auto& entry) { return workload.programs[entry.second] == program; });
    if (same != last) {
      workload.ranks.push_back({same->second});
      continue;
    }
    const auto number = static_cast<std::uint32_t>(workload.programs.size());
    workload.programs.push_back(std::move(program));
    workload.ranks.push_back({number});
    known.emplace(hash, number);
  }
  workload.coupled = std::make_shared<const Coupling>(std::move(coupled));
  return workload;
}

}  // namespace pinion::simulate
