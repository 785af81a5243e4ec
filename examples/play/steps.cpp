#include "steps.h"

#include <algorithm>
#include <climits>
#include <map>
#include <numeric>
#include <set>

namespace play {

namespace {

using pinion::simulate::Machine;
using pinion::simulate::Pattern;
using pinion::simulate::Placement;
using pinion::simulate::ProgramBuilder;

class Recorder final : public ProgramBuilder {
 public:
  using ProgramBuilder::ProgramBuilder;

  Address array(std::uint64_t bytes) override {
    const Address begin = ProgramBuilder::array(bytes);
    steps_.arrays.push_back({begin, begin + bytes});
    return begin;
  }
  void pause(Duration time) override { compute_ += time; }
  void post(CallKind call, Address address, std::uint64_t bytes, int peer, std::uint64_t site) override {
    add({.kind = Step::Kind::post,
         .call = call,
         .memory = {address, address + bytes},
         .peer = peer,
         .site = site});
  }
  void wait() override { add({.kind = Step::Kind::wait}); }
  void alltoall(Address send, Address receive, std::uint64_t piece, const std::vector<int>& peers,
                std::uint64_t site) override {
    const std::uint64_t bytes = piece * peers.size();
    add({.kind = Step::Kind::alltoall,
         .call = CallKind::alltoall,
         .memory = {send, send + bytes},
         .received = {receive, receive + bytes},
         .group = group(peers),
         .site = site});
  }
  void unmap(Range range) override { add({.kind = Step::Kind::unmap, .memory = range.to_pages()}); }
  void begin_turn() override {
    flush();
    part_ = &steps_.turn;
  }
  void end_turn(std::uint64_t turns) override {
    flush();
    steps_.turns = turns;
    part_ = &steps_.after;
  }

  Steps take() {
    flush();
    return std::move(steps_);
  }

 private:
  void add(const Step& step) {
    flush();
    part_->push_back(step);
  }
  void flush() {
    if (compute_ > 0) part_->push_back({.kind = Step::Kind::compute, .time = compute_});
    compute_ = 0;
  }
  std::size_t group(const std::vector<int>& peers) {
    const auto found = std::find(steps_.groups.begin(), steps_.groups.end(), peers);
    const auto number = static_cast<std::size_t>(found - steps_.groups.begin());
    if (found == steps_.groups.end()) steps_.groups.push_back(peers);
    return number;
  }

  Steps steps_;
  std::vector<Step>* part_ = &steps_.before;
  Duration compute_ = 0;
};

/// The bytes of all messages between two ranks, in order.
using Sizes = std::map<std::pair<int, int>, std::vector<std::uint64_t>>;

/// Adds the messages of a part of `rank`'s steps to those `sent` and `received`.
Error add_sizes(const std::vector<Step>& part, int rank, int ranks, Sizes& sent, Sizes& received) {
  for (const Step& step : part) {
    if (step.memory.bytes() > INT_MAX)
      return Error::make(EINVAL, "a message of %zu bytes is more than an MPI count holds",
                         static_cast<std::size_t>(step.memory.bytes()));
    if (step.kind != Step::Kind::post) continue;
    if (step.peer < 0 || step.peer >= ranks)
      return Error::make(EINVAL,
                         "rank %d has a message with rank %d, which this number of ranks does not have", rank,
                         step.peer);
    if (step.sends())
      sent[{rank, step.peer}].push_back(step.memory.bytes());
    else
      received[{step.peer, rank}].push_back(step.memory.bytes());
  }
  return {};
}

Error check(const std::vector<Steps>& ranks) {
  for (const auto part : {&Steps::before, &Steps::turn, &Steps::after}) {
    Sizes sent, received;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      if (Error error = add_sizes(ranks[rank].*part, static_cast<int>(rank), static_cast<int>(ranks.size()),
                                  sent, received))
        return error;
    for (const auto& [pair, sizes] : sent)
      if (received[pair] != sizes)
        return Error::make(EINVAL, "rank %d sends other messages than rank %d receives", pair.first,
                           pair.second);
    for (const auto& [pair, sizes] : received)
      if (sent[pair] != sizes)
        return Error::make(EINVAL, "rank %d receives other messages than rank %d sends", pair.second,
                           pair.first);
  }
  return {};
}

}  // namespace

Error steps_of(const Pattern& pattern, std::uint64_t turns, const Machine& machine,
               std::vector<Steps>& ranks) {
  std::vector<int> nodes(static_cast<std::size_t>(pattern.ranks));
  std::iota(nodes.begin(), nodes.end(), 0);
  const Placement apart(std::move(nodes));
  for (int rank = 0; rank < pattern.ranks; ++rank) {
    Recorder recorder(rank, apart, machine);
    pattern.write(recorder, turns);
    ranks.push_back(recorder.take());
  }
  return check(ranks);
}

bool Steps::unmaps() const {
  const auto in = [](const std::vector<Step>& part) {
    return std::any_of(part.begin(), part.end(),
                       [](const Step& step) { return step.kind == Step::Kind::unmap; });
  };
  return in(before) || in(turn) || in(after);
}

std::vector<std::uint64_t> sites_of(const std::vector<Steps>& ranks) {
  std::set<std::uint64_t> sites;
  for (const Steps& steps : ranks)
    for (const auto* part : {&steps.before, &steps.turn, &steps.after})
      for (const Step& step : *part)
        if (step.call != CallKind::none) sites.insert(step.site);
  return {sites.begin(), sites.end()};
}

}  // namespace play
