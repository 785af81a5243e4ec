#include "intercept/cuda/shapes.h"

#include <algorithm>

namespace pinion::cuda {

namespace {

constexpr unsigned kHost = 1, kArray = 3;  // CUmemorytype
constexpr int kPointer = 1;                // CUmemcpy3DOperandType
/// Of an element of an array: four channels of four bytes.
constexpr std::size_t kLargestElement = 16;

/// Wide enough for sums and products of a few sizes.
using Wide = unsigned __int128;

struct Block {
  std::size_t x, y, z;               ///< where it begins
  std::size_t pitch, rows_of_layer;  ///< of the memory around it
  std::size_t width, height, depth;  ///< in bytes, rows, layers
};

Range within(Address base, const Block& block) {
  if (block.width == 0 || block.height == 0 || block.depth == 0) return {};
  // A copy of one row, or of one layer, may leave the distance to the next one out.
  const Wide pitch = std::max(Wide{block.pitch}, Wide{block.x} + block.width);
  const Wide rows = std::max(Wide{block.rows_of_layer}, Wide{block.y} + block.height);
  if (pitch >= kAddressEnd || rows >= kAddressEnd || Wide{block.z} + block.depth >= kAddressEnd) return {};
  const Wide first_row = block.z * rows + block.y;
  const Wide last_row = (Wide{block.z} + block.depth - 1) * rows + block.y + block.height - 1;
  if (last_row >= kAddressEnd) return {};
  const Wide begin = base + first_row * pitch + block.x;
  const Wide end = base + last_row * pitch + block.x + block.width;
  if (base == 0 || end > kAddressEnd) return {};
  return {static_cast<Address>(begin), static_cast<Address>(end)};
}

template <class Side>
Range within_side(const Side& side, const Block& block) {
  if (side.type == kArray) return {};
  return within(side.type == kHost ? reinterpret_cast<Address>(side.host) : Address{side.device}, block);
}
Range touched(const Side2D& side, const Copy2D& copy) {
  return within_side(side, {side.x, side.y, 0, side.pitch, 0, copy.width, copy.height, 1});
}
Range touched(const Side3D& side, const Copy3D& copy) {
  return within_side(side,
                     {side.x, side.y, side.z, side.pitch, side.height, copy.width, copy.height, copy.depth});
}
Range touched(const BatchSide& side, const BatchCopy& copy, std::size_t element) {
  if (side.type != kPointer) return {};
  const auto bytes = [&](std::size_t elements) {
    return elements < kAddressEnd ? elements * element : elements;
  };
  return within(Address{side.memory.pointer}, {0, 0, 0, bytes(side.memory.row), side.memory.layer,
                                               bytes(copy.width), copy.height, copy.depth});
}

}  // namespace

Range touched(Address begin, std::size_t bytes) {
  return is_addressable(begin, bytes) ? Range{begin, begin + bytes} : Range{};
}

Sides touched(const Copy2D& copy) { return {touched(copy.source, copy), touched(copy.destination, copy)}; }
Sides touched(const Copy3D& copy) { return {touched(copy.source, copy), touched(copy.destination, copy)}; }
Sides touched(const BatchCopy& copy) {
  const bool plain = copy.source.type == kPointer && copy.destination.type == kPointer;
  const std::size_t element = plain ? 1 : kLargestElement;
  return {touched(copy.source, copy, element), touched(copy.destination, copy, element)};
}
Range touched(const Setting& setting) {
  const std::size_t width = setting.width < kAddressEnd ? setting.width * setting.element : setting.width;
  return within(Address{setting.memory}, {0, 0, 0, setting.pitch, 0, width, setting.height, 1});
}

void join(std::vector<Range>& ranges) {
  std::erase_if(ranges, [](const Range& range) { return range.empty(); });
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::size_t kept = 0;
  for (const Range& range : ranges) {
    if (kept > 0 && range.begin <= ranges[kept - 1].end)
      ranges[kept - 1].end = std::max(ranges[kept - 1].end, range.end);
    else
      ranges[kept++] = range;
  }
  ranges.resize(kept);
}

}  // namespace pinion::cuda
