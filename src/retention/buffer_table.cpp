#include "retention/buffer_table.h"

#include <bit>

namespace pinion {

std::pair<BufferId, bool> BufferTable::add(Range pages) {
  const auto [at, is_new] = by_begin_.try_emplace({pages.begin, pages.end}, BufferId{0});
  if (!is_new) return {at->second, false};
  ++changes_;
  BufferId id;
  if (free_.empty()) {
    id = static_cast<BufferId>(buffers_.size());
    buffers_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  at->second = id;
  if (buffers_.size() > found_.size()) {
    found_.clear();
    found_.resize(std::bit_ceil(buffers_.size()));
  }
  buffers_[id] = Buffer{};
  buffers_[id].live = true;
  buffers_[id].pages = pages;
  all_pages_ += pages.pages();
  largest_pages_ = std::max(largest_pages_, pages.pages());
  return {id, true};
}

void BufferTable::remove(BufferId id) {
  Buffer& buffer = buffers_[id];
  PINION_ASSERT(buffer.live);
  all_pages_ -= buffer.pages.pages();
  ++changes_;
  by_begin_.erase({buffer.pages.begin, buffer.pages.end});
  buffer = Buffer{};
  free_.push_back(id);
}

const std::vector<BufferId>& BufferTable::find_in(Range range) const {
  Found& found = found_[slot_of(range)];
  found.range = range;
  found.changes = changes_;
  found.buffers.clear();
  for (auto at = by_begin_.lower_bound({range.begin, 0});
       at != by_begin_.end() && at->first.first < range.end; ++at) {
    if (at->first.second <= range.end) found.buffers.push_back(at->second);
  }
  return found.buffers;
}

std::vector<BufferId> BufferTable::overlapping(Range range) const {
  std::vector<BufferId> found;
  // No buffer that begins further before can reach into the range.
  const Address reach = largest_pages_ * page_size();
  const Address first = range.begin > reach ? range.begin - reach : 0;
  for (auto at = by_begin_.lower_bound({first, 0}); at != by_begin_.end() && at->first.first < range.end;
       ++at) {
    if (at->first.second > range.begin) found.push_back(at->second);
  }
  return found;
}

std::vector<BufferId> BufferTable::longest_unused(BufferId except) const {
  std::vector<std::pair<Time, BufferId>> by_use;
  for (const auto& [key, id] : by_begin_) {
    if (id != except && !registered(buffers_[id].region)) by_use.emplace_back(buffers_[id].last_use, id);
  }
  const auto middle = by_use.begin() + static_cast<std::ptrdiff_t>(by_use.size() / 2);
  std::nth_element(by_use.begin(), middle, by_use.end());
  std::vector<BufferId> oldest;
  for (auto at = by_use.begin(); at != middle; ++at) oldest.push_back(at->second);
  return oldest;
}

}  // namespace pinion
