// Which event comes next, and how long after: learnt for each context of an event stream, answered by the
// context with the best recent record. One thread; at most kMostNodes contexts are kept.
#pragma once

#include <array>
#include <cstdint>

#include "predict/context_table.h"
#include "predict/event_context.h"
#include "predict/interval.h"
#include "predict/predictor.h"

namespace pinion {

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

}  // namespace pinion
