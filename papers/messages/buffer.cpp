#include "papers/messages/buffer.h"

#include <algorithm>
#include <cstring>

#include "transfer/endpoint/remote_memory.h"

namespace pinion::transfer {

bool Buffer::lease(std::size_t offset, std::size_t bytes, Part& part) {
  return pinion_acquire(domain_, address_ + offset, bytes, access(), &part.lease) == 0 &&
         finish_lease(offset, bytes, part);
}

bool Buffer::try_lease(std::size_t offset, std::size_t bytes, Part& part) {
  return pinion_try_acquire(domain_, address_ + offset, bytes, access(), &part.lease) == 0 &&
         finish_lease(offset, bytes, part);
}

bool Buffer::lease_registered(std::size_t offset, Part& part) {
  const std::size_t left = rest(offset);
  if (left == 0) return false;
  if (try_lease(offset, left, part)) return true;
  // The keys of the first byte's registration give its end.
  pinion_lease first;
  if (pinion_try_acquire(domain_, address_ + offset, 1, access(), &first) != 0) return false;
  pinion_keys keys{};
  keys.size = sizeof keys;
  std::size_t reach = 0;
  if (pinion_lease_keys(&first, &keys) == 0)
    reach = keys.address + keys.bytes - reinterpret_cast<std::uint64_t>(address_ + offset);
  static_cast<void>(pinion_release(&first));
  return reach > 0 && try_lease(offset, std::min(left, reach), part);
}

bool Buffer::finish_lease(std::size_t offset, std::size_t bytes, Part& part) {
  pinion_keys keys{};
  keys.size = sizeof keys;
  if (pinion_lease_keys(&part.lease, &keys) != 0) {
    static_cast<void>(pinion_release(&part.lease));
    return false;
  }
  part.offset = offset;
  part.bytes = bytes;
  part.moved = 0;
  part.memory = address_ + offset;
  part.descriptor = keys.descriptor;
  part.remote = remote_memory(keys, part.memory);
  part.chunk = {};
  return true;
}

bool Buffer::bounce(std::size_t offset, std::size_t at_most, Part& part) {
  const ChunkUse use = direction_ == Direction::receive ? ChunkUse::receiving
                       : accepted                       ? ChunkUse::sending
                                                        : ChunkUse::early;
  if (!pool_.take(use, part.chunk)) return false;
  part.offset = offset;
  part.bytes = std::min({at_most, rest(offset), pool_.chunk_bytes()});
  part.moved = 0;
  part.memory = part.chunk.memory;
  part.descriptor = pool_.descriptor();
  part.remote = pool_.remote(part.memory);
  copied_ += part.bytes;
  if (direction_ == Direction::send) std::memcpy(part.memory, address_ + offset, part.bytes);
  return true;
}

void Buffer::deliver(const Part& part, std::size_t offset, std::size_t bytes) {
  if (part.chunk.memory) std::memcpy(address_ + offset, part.memory + (offset - part.offset), bytes);
}

void Buffer::give_back(Part& part) {
  if (part.chunk.memory) {
    pool_.give_back(part.chunk);
  } else {
    static_cast<void>(pinion_release(&part.lease));
  }
}

}  // namespace pinion::transfer
