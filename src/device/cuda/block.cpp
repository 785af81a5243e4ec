#include "device/cuda/block.h"

#include <algorithm>

namespace pinion::cuda {

namespace {

/// The first of `count` ranges at a distance, of which the first one is given, that ends behind the address.
Range first_behind(Range range, std::size_t distance, std::size_t count, Address address) {
  if (address < range.end || count == 1) return range;
  const std::size_t passed = std::min((address - range.end) / distance + 1, count - 1);
  return {range.begin + passed * distance, range.end + passed * distance};
}

bool is_run(const Block& block) { return block.rows == 1 && block.layers == 1; }

bool join(Block& run, const Block& next) {
  if (!is_run(run) || !is_run(next) || !extend(run.first, next.first)) return false;
  run.reach = std::max(run.reach, run.first.end);
  return true;
}

}  // namespace

bool Block::touches(Range range) const {
  if (empty() || range.empty()) return false;
  const Range layer = {first.begin, first.end + (rows - 1) * pitch};
  const Range in = first_behind(layer, slice, layers, range.begin);
  const Range row = first_behind({in.begin, in.begin + first.bytes()}, pitch, rows, range.begin);
  return row.overlaps(range);
}

std::span<const Block> order(std::span<Block> blocks) {
  const auto before = [](const Block& a, const Block& b) { return a.first.begin < b.first.begin; };
  if (!std::is_sorted(blocks.begin(), blocks.end(), before)) std::sort(blocks.begin(), blocks.end(), before);
  std::size_t kept = 0;
  for (const Block& block : blocks) {
    if (block.empty() || (kept > 0 && join(blocks[kept - 1], block))) continue;
    blocks[kept] = block;
    const Address end = block.hull().end;
    blocks[kept].reach = kept > 0 ? std::max(blocks[kept - 1].reach, end) : end;
    ++kept;
  }
  return blocks.first(kept);
}

bool touch(std::span<const Block> blocks, Range range) {
  auto next = std::partition_point(blocks.begin(), blocks.end(),
                                   [&](const Block& block) { return block.first.begin < range.end; });
  while (next != blocks.begin() && (--next)->reach > range.begin) {
    if (next->touches(range)) return true;
  }
  return false;
}

}  // namespace pinion::cuda
