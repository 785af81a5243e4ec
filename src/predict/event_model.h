// The model of an event stream: the values and intervals that it keeps, the contexts that it knows events by,
// which event follows each, and the walk ahead. AdaptivePredictor owns it all; one thread. A context's key
// depends only on the names of sites and buffers, so that it means the same in another run.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mix.h"
#include "predict/predictor.h"

namespace pinion {

/// The latest values of something, in order of size.
class RecentValues {
 public:
  static constexpr std::size_t kMost = 64;  ///< a power of two

  void add(float value) {
    const std::size_t n = size();
    std::size_t at = n;
    if (count_ >= kMost) {
      // The oldest makes room; only values between it and the new one move.
      at = place_of(recent_[count_ % kMost]);
      for (; at + kBlock < n && sorted_[at + kBlock] < value; at += kBlock) move_block(at + 1, at);
      for (; at + 1 < n && sorted_[at + 1] < value; ++at) sorted_[at] = sorted_[at + 1];
    }
    for (; at >= kBlock && value < sorted_[at - kBlock]; at -= kBlock)
      move_block(at - kBlock, at - kBlock + 1);
    for (; at > 0 && value < sorted_[at - 1]; --at) sorted_[at] = sorted_[at - 1];
    sorted_[at] = value;
    recent_[count_++ % kMost] = value;
  }
  std::size_t size() const { return std::min<std::size_t>(count_, kMost); }
  std::span<const float> sorted() const { return {sorted_.data(), size()}; }

 private:
  static constexpr std::size_t kBlock = 8;  ///< values moved at once
  void move_block(std::size_t from, std::size_t to) {
    std::memmove(&sorted_[to], &sorted_[from], kBlock * sizeof(float));
  }

  /// Returns the place of a value that is there, with all places taken. Branch-free, as a processor would
  /// mispredict branches.
  std::size_t place_of(float value) const {
    std::size_t at = 0;
    for (std::size_t half = kMost / 2; half > 0; half /= 2) at += half * (sorted_[at + half - 1] < value);
    return at;
  }

  std::array<float, kMost> recent_{}, sorted_{};
  std::uint64_t count_ = 0;
};

/// Returns the loss, 0 to 1, of a prediction that was `off` when `interval` passed. Almost right counts much
/// more than less wrong: where two values alternate, one of them wins over their mean.
inline float prediction_loss(float off, float interval) {
  off = std::abs(off);
  return off / (off + 0.01f * std::max(std::abs(interval), 1.0f));
}

/// 1 / n for n up to 64: every event needs several, and divisions take long.
inline constexpr std::array<float, 65> kOneOver = [] {
  std::array<float, 65> table{};
  for (unsigned n = 1; n < table.size(); ++n) table[n] = 1.0f / static_cast<float>(n);
  return table;
}();

/// The time that a repeated event takes: the mean of the last 64 or so, deaf to single outliers. Four values
/// in a row that are far off show a change, and it begins anew from their median. Values in ns.
class Interval {
 public:
  void learn(Duration took) {
    const auto value = static_cast<float>(took);
    if (count_ > 0)
      loss_ += kOneOver[std::min<unsigned>(count_, 32u)] * (prediction_loss(usually_ - value, value) - loss_);
    recent_[next_++ % recent_.size()] = value;
    if (count_ < 255) ++count_;
    follow(value);
  }

  bool known() const { return count_ > 0; }
  Duration expected() const { return nearest(static_cast<double>(usually_)); }
  /// The loss to expect, 0 to 1: the recent one, and while observations are few, that of any.
  float loss() const {
    constexpr float kOfAny = 0.3f, kWeight = 4;
    const auto tested = static_cast<float>(std::min<unsigned>(count_ - 1u, 16u));
    return (tested * loss_ + kWeight * kOfAny) / (tested + kWeight) + 0.1f / static_cast<float>(count_);
  }

  /// One value that was learnt elsewhere.
  void assume(Duration value) {
    *this = {};
    learn(value);
  }

 private:
  /// Begins anew from the median of the recent values, which are put in order only here. Returns the least.
  float begin_anew() {
    const std::size_t n = std::min<std::size_t>(count_, recent_.size());
    auto sorted = recent_;
    std::sort(sorted.begin(), sorted.begin() + n);
    usually_ = sorted[(n - 1) / 2];
    return sorted.front();
  }

  void follow(float value) {
    if (count_ < 4) {
      const float least = begin_anew();
      spread_ = usually_ - least;
      followed_ = count_;
      return;
    }
    const float off = value - usually_;
    const float usual = 4 * spread_ + 0.005f * std::abs(usually_);
    if (std::abs(off) > usual) {
      // Once is an outlier; four times in a row it has changed.
      if (++strange_ < 4) return;
      begin_anew();
      spread_ = std::abs(value - usually_);
      followed_ = 4;
      strange_ = 0;
      return;
    }
    strange_ = 0;
    if (followed_ < 64) ++followed_;
    const float pace = kOneOver[followed_];
    usually_ += pace * off;
    spread_ += std::max(pace, 1.0f / 16) * (std::abs(off) - spread_);
  }

  std::array<float, 8> recent_{};
  float usually_ = 0, spread_ = 0, loss_ = 0;
  std::uint8_t count_ = 0, followed_ = 0, strange_ = 0;
  std::uint8_t next_ = 0;  ///< place in recent_ of the next value
};

/// A communication point: this call site with this buffer.
struct EventName {
  std::uint64_t site = 0;
  std::uint64_t buffer = 0;  ///< the buffer's key rather than its number
  std::uint64_t symbol = 0;  ///< for both

  EventName() = default;
  EventName(std::uint64_t its_site, std::uint64_t its_buffer)
      : site(its_site), buffer(its_buffer), symbol(mix(mix(2, its_site), its_buffer)) {}
  bool operator==(const EventName& other) const { return symbol == other.symbol; }
};

/// Stands for any buffer at its first use.
constexpr std::uint64_t kNewBuffer = 1;

enum ContextKind : unsigned {
  kCurrentContext,  ///< this event alone
  kRunContext,      ///< how often this event came in a row, and the one before the run
  kSitesContext,    ///< this and the previous call site, for all buffers
  kHistoryContext,  ///< the last sixteen
  kContextKinds
};

using Contexts = std::array<std::uint64_t, kContextKinds>;  ///< a key for each kind

/// The position of an event stream.
class StreamPosition {
 public:
  void advance(const EventName& event) {
    const std::uint64_t symbol = event.symbol;
    if (symbol == latest_) {
      if (run_ < kLongest) ++run_;
    } else {
      before_run_ = latest_;
      run_ = 1;
    }
    history_ = kBase * history_ + symbol - kOldest * last_[at_];
    last_[at_] = symbol;
    at_ = (at_ + 1) % kEvents;
    latest_ = symbol;
    previous_site_ = site_;
    site_ = event.site;
  }

  Contexts contexts() const {
    return {
        mix(mix(3, kCurrentContext), latest_),
        mix(mix(mix(mix(3, kRunContext), latest_), before_run_), run_),
        mix(mix(mix(3, kSitesContext), site_), previous_site_),
        mix(mix(3, kHistoryContext), history_),
    };
  }

 private:
  static constexpr std::uint32_t kLongest = 1024, kEvents = 16;
  // The base of a polynomial over the symbols, modulo 2^64: one symbol comes in, the oldest goes.
  static constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;
  static constexpr std::uint64_t kOldest = [](std::uint64_t power) {
    for (std::uint32_t n = 1; n < kEvents; n *= 2) power *= power;
    return power;
  }(kBase);

  std::uint64_t latest_ = 0;  ///< symbol
  std::array<std::uint64_t, kEvents> last_{};
  std::uint64_t history_ = 0;
  std::uint32_t at_ = 0;
  std::uint64_t before_run_ = 0;
  std::uint64_t site_ = 0, previous_site_ = 0;
  std::uint32_t run_ = 0;
};

/// A hash table of bounded size that forgets its longest unused entry: sets of four ways, grown by doubling
/// up to its bound. Keys lie apart from the values, a set's in one line of the cache. So a vain look touches
/// keys only, and growing moves keys only. 0 marks a free place, so keys differ from it. Pointers are good
/// until the next insert().
template <class Value>
class ContextTable {
 public:
  explicit ContextTable(std::size_t most) : most_(most), sets_(kFirst / kWays) {}

  Value* find(std::uint64_t key) {
    Set& set = set_of(key);
    for (std::size_t way = 0; way < kWays; ++way) {
      if (set.keys[way] != key) continue;
      set.used[way] = ++clock_;
      return &values_[set.values[way]];
    }
    return nullptr;
  }

  /// The key's value, or a fresh one.
  Value& insert(std::uint64_t key) {
    Value* const known = find(key);
    return known ? *known : add(key);
  }

  template <class F>
  void for_each(F&& f) const {  ///< f(key, value)
    for (const Set& set : sets_) {
      for (std::size_t way = 0; way < kWays; ++way)
        if (set.keys[way] != 0) f(set.keys[way], values_[set.values[way]]);
    }
  }
  std::size_t size() const { return values_.size(); }

 private:
  static constexpr std::size_t kWays = 4, kFirst = 256;

  struct alignas(64) Set {
    std::array<std::uint64_t, kWays> keys{};    ///< 0: empty
    std::array<std::uint32_t, kWays> used{};    ///< when, by clock_
    std::array<std::uint32_t, kWays> values{};  ///< places of the values
  };

  Set& set_of(std::uint64_t key) { return sets_[((key * 0x9E3779B97F4A7C15ull) >> 22) & mask_]; }

  /// The search is out of line, as most keys are known.
  [[gnu::noinline]] Value& add(std::uint64_t key) {
    if (values_.size() * 2 >= sets_.size() * kWays && sets_.size() * kWays < most_) grow();
    Set& set = set_of(key);
    const std::size_t way = place_in(set);
    if (set.keys[way] == 0) {
      set.values[way] = static_cast<std::uint32_t>(values_.size());
      values_.emplace_back();
    } else {
      values_[set.values[way]] = {};
    }
    set.keys[way] = key;
    set.used[way] = ++clock_;
    return values_[set.values[way]];
  }

  /// Returns the way for a further key: an empty one, or the longest unused.
  static std::size_t place_in(const Set& set) {
    std::size_t oldest = 0;
    for (std::size_t way = 1; way < kWays; ++way) {
      if (set.keys[oldest] == 0) break;
      if (set.keys[way] == 0 || set.used[way] < set.used[oldest]) oldest = way;
    }
    return oldest;
  }

  /// Each set becomes two, so all keys find a place.
  void grow() {
    std::vector<Set> before(sets_.size() * 2);
    before.swap(sets_);
    mask_ = sets_.size() - 1;
    for (const Set& old : before) {
      for (std::size_t way = 0; way < kWays; ++way) {
        if (old.keys[way] == 0) continue;
        Set& set = set_of(old.keys[way]);
        const std::size_t to = place_in(set);
        set.keys[to] = old.keys[way];
        set.used[to] = old.used[way];
        set.values[to] = old.values[way];
      }
    }
  }

  const std::size_t most_;
  std::vector<Set> sets_;  ///< a power of two
  std::size_t mask_ = kFirst / kWays - 1;
  std::vector<Value> values_;
  std::uint32_t clock_ = 0;  ///< wraps after four thousand million looks; then a few wrong victims
};

/// Which event comes next, and how long after: learnt for each context of an event stream, answered by the
/// context with the best recent record. At most kMostNodes contexts are kept.
class EventModel {
 public:
  static constexpr std::size_t kMostNodes = 32768;

  struct Event {
    EventName name;
    BufferId buffer = 0;
    bool is_new = false;  ///< the buffer's first use
  };
  struct Next {
    EventName name;
    BufferId buffer = 0;  ///< that had this name when it was last met
    Duration after = 0;
  };

  /// After `contexts` came `event`, so much later.
  void learn(const Contexts& contexts, const Event& event, Duration after);
  /// The event that follows `position`; false where all its contexts are unknown.
  bool predict(const StreamPosition& position, Next& next);
  std::size_t size() const { return nodes_.size(); }

  // ---- profile ----
  /// f(context, name of the next event, its delay, share of right predictions to expect)
  template <class F>
  void for_each(F&& f) const {
    nodes_.for_each([&](std::uint64_t context, const Node& node) {
      if (node.delay.known()) f(context, node.next, node.delay.expected(), in_another_run(node));
    });
  }
  void assume(std::uint64_t context, const EventName& next, Duration after, float right);

 private:
  struct Node {
    EventName next;
    BufferId buffer = 0;
    Interval delay;
    float right = 0;          ///< share of right predictions, of the last 32 or so
    std::uint8_t tested = 0;  ///< predictions so far, up to 32
    bool trusted = false;     ///< right the last time: one miss leaves it its place
    bool assumed = false;     ///< from a profile, and still untested
    std::uint8_t kind = 0;    ///< of context; unknown where assumed
  };
  /// The probability that the node is right, by its own record, and while that is short by its kind's.
  float probability(const Node& node, unsigned kind) const;
  /// The sureness in a later run that begins with this one's profile.
  float in_another_run(const Node& node) const;

  ContextTable<Node> nodes_{kMostNodes};
  // The share of right predictions, lately, of nodes that had hardly been tested, by kind of context.
  std::array<float, kContextKinds> first_right_ = {0.6f, 0.66f, 0.55f, 0.66f};
  float assumed_right_ = 0.5f;  ///< of nodes from a profile, at their first test
};

/// The events that are expected of one thread, in order, on a time line of their own: one step of the model
/// after the other, walked only once. An event that comes as expected moves the time line as a whole to where
/// it came (re-anchoring), and everything behind it with it.
class LookAhead {
 public:
  static constexpr std::size_t kMostSteps = 4096;  ///< ahead, per thread
  static constexpr std::uint64_t kNone = UINT64_MAX;
  static constexpr std::uint64_t kTolerance = 16;  ///< steps that events may be out of order by

  struct alignas(64) Step {
    EventName name;
    BufferId buffer = 0;
    bool live = false;                ///< `buffer` is known
    bool seen = false;                ///< the event has come
    Duration at = 0;                  ///< on the time line
    std::uint64_t next_same = kNone;  ///< the buffer's next step
  };

  LookAhead() : steps_(kFirst) {}

  /// Begins anew behind an event that came at `time`. Steps before are gone; their numbers stay
  /// retired.
  void restart(const StreamPosition& position, Time time) {
    first_ = head_ = tail_;
    position_ = position;
    base_ = time;
    end_ = anchored_at_ = 0;
    ++generation_;
  }

  /// Walks one step further; null where the model lacks a successor.
  Step* extend(EventModel& model) {
    if (tail_ - head_ >= kMostSteps) return nullptr;
    EventModel::Next next;
    if (!model.predict(position_, next)) return nullptr;
    position_.advance(next.name);
    end_ += next.after;
    make_room();
    Step& step = (*this)[tail_++];
    step = {next.name, next.buffer, false, false, end_, kNone};
    return &step;
  }

  /// The step that `name` is expected at, when it comes at `time`: the next one, or one after others that
  /// have begun by then and are under way, or were left out. kNone: not expected now.
  std::uint64_t expected(const EventName& name, bool is_new, Time time) const {
    const std::uint64_t end = std::min(tail_, head_ + kTolerance);
    for (std::uint64_t i = head_; i < end; ++i) {
      const Step& step = (*this)[i];
      if (matches(step, name, is_new)) return i;
      const Duration slack = 20 * kMicrosecond + (step.at - anchored_at_) / 16;
      if (base_ + step.at > time + slack) return kNone;
    }
    return kNone;
  }
  /// A step passed over that `name` is, after all. kNone: none.
  std::uint64_t overdue(const EventName& name, bool is_new) const {
    const std::uint64_t begin = head_ < first_ + kTolerance ? first_ : head_ - kTolerance;
    for (std::uint64_t i = head_; i-- > begin;) {
      if (!(*this)[i].seen && matches((*this)[i], name, is_new)) return i;
    }
    return kNone;
  }

  /// The event of step `i` has come at `time`: the time line moves. By how much it became earlier.
  Duration anchor(std::uint64_t i, Time time) {
    (*this)[i].seen = true;
    head_ = i + 1;
    const Time before = base_;
    anchored_at_ = (*this)[i].at;
    base_ = time - anchored_at_;
    return std::max<Duration>(0, before - base_);
  }

  Step& operator[](std::uint64_t i) { return steps_[i & mask_]; }
  const Step& operator[](std::uint64_t i) const { return steps_[i & mask_]; }
  bool holds(std::uint64_t i) const { return i >= first_ && i + kTolerance >= head_ && i < tail_; }

  std::uint64_t head() const { return head_; }  ///< the next expected one
  std::uint64_t tail() const { return tail_; }
  Time base() const { return base_; }
  std::uint32_t generation() const { return generation_; }  ///< of the walk; 0: none yet

 private:
  static constexpr std::size_t kFirst = 64;

  static bool matches(const Step& step, const EventName& name, bool is_new) {
    return step.name.site == name.site &&
           (step.name.buffer == name.buffer || (is_new && step.name.buffer == kNewBuffer));
  }

  void make_room() {
    // Steps passed over stay as long as one of them may turn out to be overdue.
    if (tail_ - head_ + kTolerance <= mask_) return;
    std::vector<Step> larger(steps_.size() * 2);
    const std::uint64_t begin = tail_ > steps_.size() ? tail_ - steps_.size() : 0;
    for (std::uint64_t i = begin; i < tail_; ++i) larger[i & (larger.size() - 1)] = (*this)[i];
    mask_ = larger.size() - 1;
    steps_.swap(larger);
  }

  std::vector<Step> steps_;  ///< a power of two
  std::uint64_t mask_ = kFirst - 1;
  std::uint64_t first_ = 0, head_ = 0, tail_ = 0;
  StreamPosition position_;   ///< behind the last step
  Duration end_ = 0;          ///< the last step's place on the time line
  Duration anchored_at_ = 0;  ///< that of the latest event
  Time base_ = 0;             ///< when the time line begins
  std::uint32_t generation_ = 0;
};

}  // namespace pinion
