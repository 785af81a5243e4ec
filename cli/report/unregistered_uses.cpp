#include "cli/report/unregistered_uses.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <tuple>
#include <vector>

#include "cli/command.h"
#include "runlog/reader.h"

namespace pinion::cli {

namespace {

constexpr std::uint64_t kLearning = 2;  ///< uses of a range before its interval can be known

void add(UnregisteredUses& sum, const runlog::Log& log) {
  std::vector<const runlog::Event*> uses;
  for (const runlog::Event& e : log.events)
    if (runlog::uses_of(e) > 0) uses.push_back(&e);
  std::sort(uses.begin(), uses.end(), [](const auto* a, const auto* b) { return a->begin_ns < b->begin_ns; });
  std::map<std::tuple<std::uint8_t, std::uint64_t, std::uint64_t>, std::uint64_t> seen;
  for (const runlog::Event* e : uses) {
    const std::uint64_t count = runlog::uses_of(*e);
    std::uint64_t& before = seen[{e->domain, e->address, e->bytes}];
    const std::uint64_t learning = std::min(count, kLearning - std::min(kLearning, before));
    before += count;
    if (e->outcome == runlog::Outcome::hit) continue;
    sum.all += count;
    sum.reuses += count - learning;
  }
  sum.known = sum.known && log.all_events();
}

}  // namespace

UnregisteredUses unregistered_uses(const std::string& logs) {
  UnregisteredUses sum{.known = true};
  const Error error = runlog::for_each_log({logs}, [&](runlog::Log&& log) { add(sum, log); });
  if (error && error.code != ENOENT) throw Failure(error.message);
  if (error) sum.known = false;
  return sum;
}

}  // namespace pinion::cli
