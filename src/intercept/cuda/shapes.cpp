#include "intercept/cuda/shapes.h"

#include <algorithm>

namespace pinion::cuda {

namespace {

constexpr unsigned kHost = 1, kArray = 3;  // CUmemorytype
constexpr int kPointer = 1, kOfArray = 2;  // CUmemcpy3DOperandType

/// Wide enough for sums and products of a few sizes.
using Wide = unsigned __int128;

struct Part {
  std::size_t x, y, z;               ///< where it begins
  std::size_t pitch, rows_of_layer;  ///< of the memory around it
  std::size_t width, height, depth;  ///< in bytes, rows, layers
};

Block within(Address base, const Part& part) {
  if (part.width == 0 || part.height == 0 || part.depth == 0) return {};
  // A copy of one row, or of one layer, may leave the distance to the next one out.
  const Wide pitch = std::max(Wide{part.pitch}, Wide{part.x} + part.width);
  const Wide rows = std::max(Wide{part.rows_of_layer}, Wide{part.y} + part.height);
  if (pitch >= kAddressEnd || rows >= kAddressEnd || Wide{part.z} + part.depth >= kAddressEnd) return {};
  const Wide first_row = part.z * rows + part.y;
  const Wide last_row = (Wide{part.z} + part.depth - 1) * rows + part.y + part.height - 1;
  if (last_row >= kAddressEnd) return {};
  const Wide begin = base + first_row * pitch + part.x;
  const Wide end = base + last_row * pitch + part.x + part.width;
  if (base == 0 || end > kAddressEnd) return {};
  Block block = Range{static_cast<Address>(begin), static_cast<Address>(begin) + part.width};
  block.pitch = static_cast<std::size_t>(pitch), block.rows = part.height;
  block.layers = part.depth;
  if (part.depth > 1) block.slice = static_cast<std::size_t>(rows * pitch);
  block.reach = static_cast<Address>(end);
  return block;
}

template <class Side>
Block within_side(const Side& side, const Part& part) {
  if (side.type == kArray) return {};
  return within(side.type == kHost ? reinterpret_cast<Address>(side.host) : Address{side.device}, part);
}
Block touched(const Side2D& side, const Copy2D& copy) {
  return within_side(side, {side.x, side.y, 0, side.pitch, 0, copy.width, copy.height, 1});
}
Block touched(const Side3D& side, const Copy3D& copy) {
  return within_side(side,
                     {side.x, side.y, side.z, side.pitch, side.height, copy.width, copy.height, copy.depth});
}
Block touched(const BatchSide& side, const BatchCopy& copy, std::size_t element) {
  if (side.type != kPointer) return {};
  const auto bytes = [&](std::size_t elements) {
    return elements < kAddressEnd ? elements * element : elements;
  };
  // Most pieces of large batches are one row.
  if (copy.height == 1 && copy.depth == 1)
    return cuda::touched(Address{side.memory.pointer}, bytes(copy.width));
  return within(Address{side.memory.pointer}, {0, 0, 0, bytes(side.memory.row), side.memory.layer,
                                               bytes(copy.width), copy.height, copy.depth});
}

}  // namespace

Block touched(Address begin, std::size_t bytes) {
  return is_addressable(begin, bytes) ? Block(Range{begin, begin + bytes}) : Block();
}

Sides touched(const Copy2D& copy) { return {touched(copy.source, copy), touched(copy.destination, copy)}; }
Sides touched(const Copy3D& copy) { return {touched(copy.source, copy), touched(copy.destination, copy)}; }
Sides touched(const BatchCopy& copy, std::size_t element) {
  return {touched(copy.source, copy, element), touched(copy.destination, copy, element)};
}
void* array_of(const BatchCopy& copy) {
  for (const BatchSide* const side : {&copy.source, &copy.destination})
    if (side->type == kOfArray) return side->array.array;
  return nullptr;
}
Block touched(const Setting& setting) {
  const std::size_t width = setting.width < kAddressEnd ? setting.width * setting.element : setting.width;
  return within(Address{setting.memory}, {0, 0, 0, setting.pitch, 0, width, setting.height, 1});
}

}  // namespace pinion::cuda
