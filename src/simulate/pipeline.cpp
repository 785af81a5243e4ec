#include "simulate/pipeline.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/range.h"

namespace pinion::simulate {

namespace {

std::size_t pages_of(std::size_t bytes) { return Range{0, bytes}.to_pages().pages(); }

}  // namespace

Duration pipeline_time(std::size_t bytes, Pieces pieces, const Pipeline& pipeline, const CostModel& nic,
                       const Machine& machine) {
  const auto on_wire = [&](std::size_t part) {
    return static_cast<Duration>(1e9 * static_cast<double>(part) / machine.network_bytes_per_second);
  };
  const bool copied = bytes < pipeline.register_from;
  Duration processor = 0, wire = 0;                         // when each is free
  std::vector<std::pair<std::size_t, Duration>> under_way;  // pages, and the end of its time on the wire
  const auto deregister_oldest = [&] {
    processor = std::max(processor, under_way.front().second) + nic.deregister_cost(under_way.front().first);
    under_way.erase(under_way.begin());
  };
  for (std::size_t offset = 0; offset < bytes;) {
    const bool chunk = copied || offset == 0;
    const std::size_t part = std::min(bytes - offset, chunk ? pipeline.chunk_bytes : pipeline.piece_bytes);
    if (chunk) {
      processor += copy_time(part, machine.memory_bytes_per_second * 1e-9);
    } else if (pieces != Pieces::registered) {
      if (under_way.size() == pipeline.depth) deregister_oldest();
      processor += nic.register_cost(pages_of(part));
    }
    wire = std::max(wire, processor) + on_wire(part);
    if (!chunk && pieces == Pieces::passing) under_way.emplace_back(pages_of(part), wire);
    offset += part;
  }
  while (!under_way.empty()) deregister_oldest();
  return std::max(wire + machine.latency, processor);
}

std::size_t pipeline_peak(std::size_t bytes, std::size_t buffers, bool pinned, const Pipeline& pipeline) {
  const std::size_t pool = pipeline.chunks * pipeline.chunk_bytes;
  if (bytes < pipeline.register_from) return pool;
  const std::size_t registered = bytes - pipeline.chunk_bytes;
  return pool + (pinned ? buffers * registered : std::min(registered, pipeline.depth * pipeline.piece_bytes));
}

}  // namespace pinion::simulate
