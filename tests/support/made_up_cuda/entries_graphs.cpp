// Captures and graphs.
#include <algorithm>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

/// CUgraphNodeParams, as far as it describes a copy.
struct NodeParameters {
  int type;
  int reserved[3];
  int flags;
  int reserved2;
  Handle context;
  Copy3D copy;
};
constexpr int kMemcpyNode = 1;

Result read(const Copy3D* shape, Transfer& transfer) {
  if (!shape || !describe(*shape, transfer)) return kInvalidValue;
  return prepare(transfer);
}

/// Sets the copy of a node. A node of a graph that was instantiated is a copy of the graph's.
Result change(Node* node, const Copy3D* shape) {
  Transfer transfer;
  if (!node || node->other) return kInvalidHandle;
  if (const Result refused = read(shape, transfer)) return refused;
  node->transfer = transfer;
  return kSuccess;
}

Result add(Handle* made, Handle graph, const Copy3D* shape) {
  const auto known = world().graphs.find(graph);
  Transfer transfer;
  if (!known) return kInvalidHandle;
  if (const Result refused = read(shape, transfer)) return refused;
  const Handle node = add_node(*known, {transfer, nullptr, nullptr});
  if (made) *made = node;
  return kSuccess;
}

Result instantiate(Handle* made, Handle graph) {
  const auto known = world().graphs.find(graph);
  if (!known || !made) return kInvalidHandle;
  auto copy = std::make_shared<Graph>();
  for (const auto& node : known->nodes) copy->nodes.push_back(std::make_shared<Node>(*node));
  *made = world().executables.add(std::move(copy));
  return kSuccess;
}

Result change_executable(Handle executable, Handle handle, const Copy3D* shape) {
  const auto known = world().executables.find(executable);
  if (!known) return kInvalidHandle;
  const auto node = std::find_if(known->nodes.begin(), known->nodes.end(),
                                 [handle](const auto& one) { return one->handle == handle; });
  return node == known->nodes.end() ? kInvalidHandle : change(node->get(), shape);
}

}  // namespace

extern "C" {

Result cuThreadExchangeStreamCaptureMode(int* mode) {
  MADE_UP_CALL(Need::kInitialized);
  if (!mode || *mode < 0 || *mode > pinion::gpu::kCaptureRelaxed) return kInvalidValue;
  std::swap(*mode, self().capture_mode);
  return kSuccess;
}

Result cuGraphCreate(Handle* graph, unsigned flags) {
  MADE_UP_CALL(Need::kInitialized);
  if (!graph || flags) return kInvalidValue;
  *graph = world().graphs.add(std::make_shared<Graph>());
  return kSuccess;
}

Result cuGraphDestroy(Handle graph) {
  MADE_UP_CALL(Need::kInitialized);
  const auto gone = world().graphs.remove(graph);
  if (!gone) return kInvalidHandle;
  for (const auto& node : gone->nodes) world().nodes.remove(node->handle);
  return kSuccess;
}

Result cuGraphAddMemcpyNode(Handle* node, Handle graph, const Handle*, std::size_t, const Copy3D* shape,
                            Handle) {
  MADE_UP_CALL(Need::kContext);
  return add(node, graph, shape);
}

Result cuGraphMemcpyNodeSetParams(Handle node, const Copy3D* shape) {
  MADE_UP_CALL(Need::kContext);
  return change(world().nodes.find(node).get(), shape);
}

Result cuGraphExecMemcpyNodeSetParams(Handle executable, Handle node, const Copy3D* shape, Handle) {
  MADE_UP_CALL(Need::kContext);
  return change_executable(executable, node, shape);
}

Result cuGraphAddNode(Handle* node, Handle graph, const Handle*, std::size_t, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  if (!parameters) return kInvalidValue;
  return parameters->type == kMemcpyNode ? add(node, graph, &parameters->copy) : kNotSupported;
}

Result cuGraphAddNode_v2(Handle* node, Handle graph, const Handle*, const void*, std::size_t,
                         NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  if (!parameters) return kInvalidValue;
  return parameters->type == kMemcpyNode ? add(node, graph, &parameters->copy) : kNotSupported;
}

Result cuGraphNodeSetParams(Handle node, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  if (!parameters) return kInvalidValue;
  return parameters->type == kMemcpyNode ? change(world().nodes.find(node).get(), &parameters->copy)
                                         : kNotSupported;
}

Result cuGraphExecNodeSetParams(Handle executable, Handle node, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  if (!parameters) return kInvalidValue;
  return parameters->type == kMemcpyNode ? change_executable(executable, node, &parameters->copy)
                                         : kNotSupported;
}

Result cuGraphInstantiateWithFlags(Handle* executable, Handle graph, unsigned long long) {
  MADE_UP_CALL(Need::kContext);
  return instantiate(executable, graph);
}

Result cuGraphExecDestroy(Handle executable) {
  MADE_UP_CALL(Need::kInitialized);
  return world().executables.remove(executable) ? kSuccess : kInvalidHandle;
}

}  // extern "C"

MADE_UP_PAIR(cuStreamBeginCapture_v2, _ptsz, (Handle handle, int mode), (handle, mode)) {
  MADE_UP_STREAM(stream, handle);
  return begin_capture(stream, mode);
}
MADE_UP_END

MADE_UP_PAIR(cuStreamEndCapture, _ptsz, (Handle handle, Handle* graph), (handle, graph)) {
  MADE_UP_STREAM(stream, handle);
  std::shared_ptr<Graph> made;
  const Result result = end_capture(stream, made);
  if (graph) *graph = made ? world().graphs.add(made) : nullptr;
  return result;
}
MADE_UP_END

MADE_UP_PAIR(cuStreamIsCapturing, _ptsz, (Handle handle, int* status), (handle, status)) {
  MADE_UP_STREAM(stream, handle);
  if (!status) return kInvalidValue;
  if (stream->legacy) {
    for (const auto& capture : world().captures) {
      if (capture->origin->context == stream->context && capture->origin->blocking()) return kCaptureImplicit;
    }
  }
  *status = !stream->capture ? 0 : stream->capture->lost ? 2 : 1;
  return kSuccess;
}
MADE_UP_END

MADE_UP_PAIR(cuGraphLaunch, _ptsz, (Handle executable, Handle handle), (executable, handle)) {
  MADE_UP_STREAM(stream, handle);
  const auto graph = world().executables.find(executable);
  return graph ? launch(call, stream, *graph) : kInvalidHandle;
}
MADE_UP_END
