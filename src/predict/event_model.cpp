#include "predict/event_model.h"

#include <utility>

namespace pinion {

namespace {
constexpr std::uint8_t kHardlyTested = 3;
constexpr std::uint8_t kRemembered = 32;
constexpr std::uint8_t kAsGoodAs = 4;  // so many tests in this run, a profile's share
// The sureness that a run which has met a long history of another run goes on like it.
constexpr float kSameProgram = 0.98f;
}  // namespace

float EventModel::probability(const Node& node, unsigned kind) const {
  if (node.assumed) return assumed_right_ * node.right;
  constexpr float kWeight = 2;  // of the others
  const float others = first_right_[kind];
  const auto tested = static_cast<float>(node.tested);
  return (tested * node.right + kWeight * others) / (tested + kWeight);
}

float EventModel::in_another_run(const Node& node) const {
  if (node.assumed) return node.right;  // as it was told
  return node.tested == 0 && node.kind == kHistoryContext ? kSameProgram : probability(node, node.kind);
}

void EventModel::learn(const Contexts& contexts, const Event& event, Duration after) {
  EventName any_new;
  if (event.is_new) any_new = {event.name.site, kNewBuffer};
  for (unsigned kind = 0; kind < kContextKinds; ++kind) {
    const EventName& name = event.is_new && kind == kSitesContext ? any_new : event.name;
    Node& node = nodes_.insert(contexts[kind]);
    node.kind = static_cast<std::uint8_t>(kind);
    if (node.delay.known()) {
      const bool right = node.next == name;
      const float was_right = right ? 1.0f : 0.0f;
      if (node.assumed) {
        assumed_right_ += (was_right - assumed_right_) / 8;
        node.tested = right ? kAsGoodAs : 0;
      } else if (node.tested < kHardlyTested) {
        first_right_[kind] += (was_right - first_right_[kind]) / 32;
      }
      // Over many: a walk takes several answers ahead from a node, so the last result must hardly change the
      // next answer.
      if (node.tested < kRemembered) ++node.tested;
      node.right += (was_right - node.right) / static_cast<float>(node.tested);
      node.assumed = false;
      if (right) {
        node.trusted = true;
        node.buffer = event.buffer;
        node.delay.learn(after);
        continue;
      }
      if (std::exchange(node.trusted, false)) continue;
    }
    node.next = name;
    node.buffer = event.buffer;
    node.assumed = false;
    node.delay.assume(after);
  }
}

bool EventModel::predict(const StreamPosition& position, Next& next) {
  const Contexts contexts = position.contexts();
  const Node* best = nullptr;
  float least = 0;
  for (unsigned kind = 0; kind < kContextKinds; ++kind) {
    const Node* node = nodes_.find(contexts[kind]);
    if (!node || !node->delay.known()) continue;
    // Which event it is counts more than when it comes.
    const float loss = 1 - probability(*node, kind) + 0.1f * node->delay.loss();
    if (best && loss >= least) continue;
    best = node;
    least = loss;
  }
  if (!best) return false;
  next = {best->next, best->buffer, best->delay.expected()};
  return true;
}

void EventModel::assume(std::uint64_t context, const EventName& next, Duration after, float right) {
  if (context == 0) return;
  Node& node = nodes_.insert(context);
  node.next = next;
  node.delay.assume(after);
  node.right = right;
  node.assumed = true;
}

}  // namespace pinion
