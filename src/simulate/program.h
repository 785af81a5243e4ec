// The program of a process: for each of its threads the operations before, in each turn of, and
// after its main loop. Values, shared by all ranks that do the same.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "simulate/disturbance.h"
#include "simulate/operation.h"
#include "simulate/schedule_predictor.h"

namespace pinion::simulate {

struct ThreadProgram {
  std::vector<Operation> before, turn, after;
  std::uint64_t turns = 0;

  bool operator==(const ThreadProgram&) const = default;
  std::uint64_t operations() const { return before.size() + turns * turn.size() + after.size(); }
};

struct Program {
  std::vector<ThreadProgram> threads;
  std::size_t domains = 1;

  bool operator==(const Program&) const = default;
  std::uint64_t acquires() const;
};

/// A thread's program as a script; its computations may be disturbed.
class ProgramScript final : public Script {
 public:
  explicit ProgramScript(const ThreadProgram& program, std::unique_ptr<Disturbance> disturbance = nullptr)
      : program_(program),
        disturbance_(std::move(disturbance)),
        operations_(static_cast<double>(program.operations())) {}

  bool next(Operation& operation) override {
    while (at_ == part_->size()) {
      if (part_ == &program_.after) return false;
      at_ = 0;
      part_ = turn_ < program_.turns ? &program_.turn : &program_.after;
      ++turn_;
    }
    operation = (*part_)[at_++];
    if (disturbance_)
      operation.compute = disturbance_->of(operation.compute, static_cast<double>(done_++) / operations_);
    return true;
  }

 private:
  const ThreadProgram& program_;
  const std::unique_ptr<Disturbance> disturbance_;
  const std::vector<Operation>* part_ = &program_.before;
  std::size_t at_ = 0;
  std::uint64_t turn_ = 0;
  std::uint64_t done_ = 0;
  const double operations_;
};

/// The times of all uses in the scripts of a process that begins at `start`, by the program's own time:
/// without waits for registration. Consumes the scripts.
Schedule schedule_of(const std::vector<std::unique_ptr<Script>>& scripts, Time start);

}  // namespace pinion::simulate
