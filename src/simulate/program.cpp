#include "simulate/program.h"

#include <algorithm>

namespace pinion::simulate {

std::uint64_t Program::acquires() const {
  const auto count = [](const std::vector<Operation>& part) {
    return static_cast<std::uint64_t>(std::count_if(part.begin(), part.end(), [](const Operation& operation) {
      return operation.kind == Operation::Kind::acquire;
    }));
  };
  std::uint64_t sum = 0;
  for (const ThreadProgram& thread : threads)
    sum += count(thread.before) + thread.turns * count(thread.turn) + count(thread.after);
  return sum;
}

Schedule schedule_of(const std::vector<std::unique_ptr<Script>>& scripts, Time start) {
  Schedule schedule(scripts.size());
  for (std::size_t thread = 0; thread < scripts.size(); ++thread) {
    Time time = start;
    for (Operation operation; scripts[thread]->next(operation);) {
      time += operation.compute + operation.transfer;
      if (operation.kind == Operation::Kind::acquire)
        schedule.add(thread, time, operation.range, operation.site);
    }
  }
  return schedule;
}

}  // namespace pinion::simulate
