#include "support/made_up_cuda/captures.h"

#include <algorithm>

#include "support/made_up_cuda/copies.h"

namespace pinion::made_up_cuda {

Result forbid_in_captures() {
  const Thread& thread = self();
  if (thread.capture_mode == gpu::kCaptureRelaxed) return kSuccess;
  Result result = kSuccess;
  for (const auto& capture : world().captures) {
    const bool own = capture->thread == thread.number;
    const bool forbids =
        own ? capture->mode != gpu::kCaptureRelaxed
            : capture->mode == gpu::kCaptureGlobal && thread.capture_mode == gpu::kCaptureGlobal;
    if (!forbids) continue;
    capture->lost = true;
    result = kCaptureUnsupported;
  }
  return result;
}

Result forbid_in_all_captures(const Context& context) {
  Result result = kSuccess;
  for (const auto& capture : world().captures) {
    if (capture->origin->context.get() != &context) continue;
    capture->lost = true;
    result = kCaptureUnsupported;
  }
  return result;
}

Result forbid_question(const std::shared_ptr<Capture>& capture, Result error) {
  if (!capture || !world().settings.strict_captures) return kSuccess;
  capture->lost = true;
  return error;
}

Result check_capture(const Stream& stream) {
  if (stream.capture) return stream.capture->lost ? kCaptureInvalidated : kSuccess;
  if (!stream.legacy) return kSuccess;
  Result result = kSuccess;
  for (const auto& capture : world().captures) {
    if (capture->origin->context != stream.context || !capture->origin->blocking()) continue;
    capture->lost = true;
    result = kCaptureImplicit;
  }
  return result;
}

Handle add_node(Graph& graph, Node node) {
  const auto made = std::make_shared<Node>(std::move(node));
  made->handle = world().nodes.add(made);
  graph.nodes.push_back(made);
  return made->handle;
}

void record(const Stream& stream, Node node) { add_node(*stream.capture->graph, std::move(node)); }

Result begin_capture(const StreamPointer& stream, int mode) {
  if (stream->legacy) return kCaptureUnsupported;
  if (stream->capture || mode < 0 || mode > gpu::kCaptureRelaxed) return kInvalidValue;
  const auto capture = std::make_shared<Capture>();
  capture->mode = mode;
  capture->thread = self().number;
  capture->origin = stream;
  stream->capture = capture;
  world().captures.push_back(capture);
  return kSuccess;
}

Result end_capture(const StreamPointer& stream, std::shared_ptr<Graph>& graph) {
  const auto capture = stream->capture;
  if (!capture || capture->origin != stream) return kInvalidValue;
  if (capture->mode != gpu::kCaptureRelaxed && capture->thread != self().number) return kCaptureWrongThread;
  for (const StreamPointer& member : stream->context->streams) {
    if (member->capture == capture) member->capture.reset();
  }
  std::erase(world().captures, capture);
  capture->origin.reset();
  if (capture->lost) return kCaptureInvalidated;
  graph = capture->graph;
  return kSuccess;
}

Result launch(Call& call, const StreamPointer& stream, const Graph& graph) {
  if (const Result refused = check_capture(*stream)) return refused;
  const std::vector<std::shared_ptr<Node>> nodes = graph.nodes;
  if (stream->capture) {
    for (const auto& node : nodes) record(*stream, *node);
    return kSuccess;
  }
  bool waits = false;
  std::vector<WorkPointer> works;
  for (const auto& node : nodes) {
    if (node->other || node->transfer.bytes() == 0) {
      works.push_back(std::make_shared<Work>());
      works.back()->run = node->other;
      continue;
    }
    const StagedCopy staged = stage(call.lock(), node->transfer);
    waits = waits || staged.waits;
    works.push_back(staged.work);
  }
  enter(call.lock(), *stream, call.name());
  for (const WorkPointer& work : works) submit(stream, work);
  return waits ? await(call.lock(), *stream->context, *works.back(), call.name()) : kSuccess;
}

}  // namespace pinion::made_up_cuda
