// A value for each address, which changes in steps, such as how often memory is counted. StepMap keeps the
// steps in order, in blocks of up to 64: a step of 16 bytes takes some 17 to 25, where a node of a tree takes
// 64. Its owner guards it. It allocates, so it is for ordinary code, outside of hooks and spin locks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/range.h"

namespace pinion {

/// A new map has Value{} everywhere.
template <class Value>
class StepMap {
 public:
  /// Calls f(part, value), in order of address, for the maximal parts of `range` that have one value.
  template <class F>
  void for_each(Range range, F&& f) const {
    if (range.empty()) return;
    Address at = range.begin;
    Value value = value_at(at);
    for (auto block = block_of(at); block != blocks_.end() && block->first < range.end; ++block) {
      for (auto step = after(block->second, at); step != block->second.end(); ++step) {
        if (step->at >= range.end) break;
        f(Range{at, step->at}, value);
        at = step->at;
        value = step->value;
      }
    }
    f(Range{at, range.end}, value);
  }

  /// Lets f(part, value) change the value of each such part; f leaves this object alone.
  template <class F>
  void change(Range range, F&& f) {
    if (range.empty()) return;
    Value before = range.begin == 0 ? Value{} : value_at(range.begin - 1);
    const Value behind = value_at(range.end);
    changed_.clear();
    const auto set = [&](Address at, const Value& value) {
      if (value != before) changed_.push_back({at, value});
      before = value;
    };
    for_each(range, [&](Range part, Value value) {
      f(part, value);
      set(part.begin, value);
    });
    set(range.end, behind);
    erase(range.begin, range.end);
    for (const Step& step : changed_) insert(step);
  }

 private:
  /// The value from this address to the next step's.
  struct Step {
    Address at;
    Value value;
  };
  static constexpr std::size_t kMost = 64;
  using Block = std::vector<Step>;
  /// By the first address that a block is for: the first one's is 0, and each reaches to the next. All but
  /// the first hold a step at least.
  using Blocks = std::map<Address, Block>;

  template <class Map>
  static auto block_in(Map& blocks, Address at) {
    const auto next = blocks.upper_bound(at);
    return next == blocks.begin() ? next : std::prev(next);
  }
  auto block_of(Address at) const { return block_in(blocks_, at); }
  auto block_of(Address at) { return block_in(blocks_, at); }

  /// Returns the first step behind `at`, and the first one that is not before it.
  template <class Steps>
  static auto after(Steps& steps, Address at) {
    return std::upper_bound(steps.begin(), steps.end(), at,
                            [](Address wanted, const Step& step) { return wanted < step.at; });
  }
  template <class Steps>
  static auto from(Steps& steps, Address at) {
    return std::lower_bound(steps.begin(), steps.end(), at,
                            [](const Step& step, Address wanted) { return step.at < wanted; });
  }

  Value value_at(Address at) const {
    const auto block = block_of(at);
    if (block == blocks_.end()) return {};
    const auto next = after(block->second, at);
    if (next != block->second.begin()) return std::prev(next)->value;
    if (block == blocks_.begin() || std::prev(block)->second.empty()) return {};
    return std::prev(block)->second.back().value;
  }

  /// Removes the steps from `first` to `last`, both included.
  void erase(Address first, Address last) {
    for (auto block = block_of(first); block != blocks_.end() && block->first <= last;) {
      Block& steps = block->second;
      steps.erase(from(steps, first), after(steps, last));
      block = steps.empty() && block != blocks_.begin() ? blocks_.erase(block) : std::next(block);
    }
  }

  /// Adds a step where there is none.
  void insert(const Step& step) {
    if (blocks_.empty()) blocks_[0];
    auto block = block_of(step.at);
    if (block->second.size() == kMost) block = split(block, step.at);
    block->second.insert(from(block->second, step.at), step);
  }

  /// Makes room in a full block, and returns the one for a step at `at`.
  typename Blocks::iterator split(typename Blocks::iterator block, Address at) {
    Block& steps = block->second;
    // Memory is mostly handed out in one direction: a step beyond all others begins a block of its own.
    auto middle = steps.begin() + kMost / 2;
    if (at < steps.front().at) middle = steps.begin();
    if (at > steps.back().at) middle = steps.end();
    const Address first = middle == steps.end() ? at : middle->at;
    const auto upper = blocks_.emplace_hint(std::next(block), first, Block(middle, steps.end()));
    steps.erase(middle, steps.end());
    return at < first ? block : upper;
  }

  Blocks blocks_;
  Block changed_;  ///< the steps that a change makes, for their memory
};

}  // namespace pinion
