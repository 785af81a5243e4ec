// Captures and graphs.
#include <algorithm>
#include <cstring>

#include "support/made_up_cuda/captures.h"
#include "support/made_up_cuda/entry.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

namespace {

/// CUDA_MEMSET_NODE_PARAMS.
struct Fill {
  DevicePointer to;
  std::size_t pitch;
  unsigned value, element;
  std::size_t width, height;
};

/// CUgraphNodeParams, as far as it describes copies and memsets.
struct NodeParameters {
  int type;
  int reserved[3];
  union {
    struct {
      int flags, reserved;
      Handle context;
      Copy3D shape;
    } copy;
    Fill fill;
  };
};
constexpr int kMemcpyNode = 1, kMemsetNode = 2;

Result read(const Fill* shape, Node& node) {
  if (!shape || (shape->element != 1 && shape->element != 2 && shape->element != 4)) return kInvalidValue;
  const std::size_t count = shape->width * shape->height;
  const auto bytes = std::make_shared<std::vector<char>>(count * shape->element);
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(bytes->data() + i * shape->element, &shape->value, shape->element);
  Transfer transfer;
  transfer.width = transfer.from.pitch = shape->width * shape->element;
  transfer.height = shape->height;
  transfer.from.address = reinterpret_cast<pinion::Address>(bytes->data());
  transfer.to.address = shape->to;
  transfer.to.pitch = shape->height > 1 ? shape->pitch : transfer.width;
  if (const Result refused = prepare(transfer)) return refused;
  if (transfer.to.pageable()) return kInvalidValue;
  node.other = [transfer, bytes] { return run(transfer, bytes.get()); };
  return kSuccess;
}

Result read(const Copy3D* shape, Node& node) {
  Transfer transfer;
  if (!shape || !describe(*shape, transfer)) return kInvalidValue;
  if (const Result refused = prepare(transfer)) return refused;
  node.transfer = transfer;
  return kSuccess;
}

/// Sets what a node does. A node of a graph that was instantiated is a copy of the graph's.
template <class Shape>
Result change(Node* node, const Shape* shape) {
  return node ? read(shape, *node) : kInvalidHandle;
}

template <class Shape>
Result add(Handle* made, Handle graph, const Shape* shape) {
  const auto known = world().graphs.find(graph);
  Node node;
  if (!known) return kInvalidHandle;
  if (const Result refused = read(shape, node)) return refused;
  const Handle handle = add_node(*known, std::move(node));
  if (made) *made = handle;
  return kSuccess;
}

/// Calls `use` with the copy or the memset that the parameters describe.
template <class Use>
Result with_shape(const NodeParameters* parameters, Use&& use) {
  if (!parameters) return kInvalidValue;
  if (parameters->type == kMemcpyNode) return use(&parameters->copy.shape);
  return parameters->type == kMemsetNode ? use(&parameters->fill) : kNotSupported;
}

Result instantiate(Handle* made, Handle graph) {
  const auto known = world().graphs.find(graph);
  if (!known || !made) return kInvalidHandle;
  auto copy = std::make_shared<Graph>();
  for (const auto& node : known->nodes) copy->nodes.push_back(std::make_shared<Node>(*node));
  *made = world().executables.add(std::move(copy));
  return kSuccess;
}

template <class Shape>
Result change_executable(Handle executable, Handle handle, const Shape* shape) {
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

Result cuGraphAddMemsetNode(Handle* node, Handle graph, const Handle*, std::size_t, const Fill* shape,
                            Handle) {
  MADE_UP_CALL(Need::kContext);
  return add(node, graph, shape);
}

Result cuGraphMemsetNodeSetParams(Handle node, const Fill* shape) {
  MADE_UP_CALL(Need::kContext);
  return change(world().nodes.find(node).get(), shape);
}

Result cuGraphExecMemsetNodeSetParams(Handle executable, Handle node, const Fill* shape, Handle) {
  MADE_UP_CALL(Need::kContext);
  return change_executable(executable, node, shape);
}

Result cuGraphAddNode(Handle* node, Handle graph, const Handle*, std::size_t, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  return with_shape(parameters, [&](const auto* shape) { return add(node, graph, shape); });
}

Result cuGraphAddNode_v2(Handle* node, Handle graph, const Handle*, const void*, std::size_t,
                         NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  return with_shape(parameters, [&](const auto* shape) { return add(node, graph, shape); });
}

Result cuGraphNodeSetParams(Handle node, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  return with_shape(parameters,
                    [&](const auto* shape) { return change(world().nodes.find(node).get(), shape); });
}

Result cuGraphExecNodeSetParams(Handle executable, Handle node, NodeParameters* parameters) {
  MADE_UP_CALL(Need::kContext);
  return with_shape(parameters,
                    [&](const auto* shape) { return change_executable(executable, node, shape); });
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

MADE_UP_PAIR(cuStreamBeginCapture, _ptsz, (Handle handle), (handle)) {
  MADE_UP_STREAM(stream, handle);
  return begin_capture(stream, pinion::gpu::kCaptureGlobal);
}
MADE_UP_END

MADE_UP_PAIR(cuStreamBeginCaptureToGraph, _ptsz,
             (Handle handle, Handle graph, const Handle* dependencies, const void* edges, std::size_t count,
              int mode),
             (handle, graph, dependencies, edges, count, mode)) {
  (void)dependencies, (void)edges, (void)count;
  MADE_UP_STREAM(stream, handle);
  const auto known = world().graphs.find(graph);
  if (!known) return kInvalidHandle;
  const Result begun = begin_capture(stream, mode);
  if (begun == kSuccess) stream->capture->graph = known;
  return begun;
}
MADE_UP_END

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
