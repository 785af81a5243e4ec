// Captures and graphs: what streams record instead of doing it, and what a capture forbids.
//
// Owns nothing (world.h does). Under the driver's mutex, which launch() releases meanwhile.
#pragma once

#include <functional>

#include "support/made_up_cuda/transfers.h"

namespace pinion::made_up_cuda {

/// A piece of work of a graph: a transfer, or anything else.
struct Node {
  Transfer transfer;
  std::function<Result()> other;
  Handle handle = nullptr;
};

struct Graph {
  std::vector<std::shared_ptr<Node>> nodes;  ///< in the order of their making, which is that of the launch
};

struct Capture {
  int mode = 0;
  std::uint64_t thread = 0;
  bool lost = false;
  StreamPointer origin;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
};

/// For a call that a capture forbids: its error, after which the capture is lost.
Result forbid_in_captures();
/// For a call that no mode permits: all captures of the context are lost.
Result forbid_in_all_captures(const Context& context);
/// For a question about what a capture has taken up (null: none has): its error, after which a strict driver
/// has lost the capture.
Result forbid_question(const std::shared_ptr<Capture>& capture, Result error);
/// For work in this stream: an error, where it captures no more, or where a blocking stream captures beside
/// the legacy stream.
Result check_capture(const Stream& stream);
/// Records work of a stream that captures.
void record(const Stream& stream, Node node);
Handle add_node(Graph& graph, Node node);

Result begin_capture(const StreamPointer& stream, int mode);
/// Ends the capture. The graph is null after an error.
Result end_capture(const StreamPointer& stream, std::shared_ptr<Graph>& graph);

Result launch(Call& call, const StreamPointer& stream, const Graph& graph);

}  // namespace pinion::made_up_cuda
