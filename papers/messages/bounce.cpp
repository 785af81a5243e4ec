// Bounce: each part is copied through a chunk of the pool, on both sides. Nothing is registered.
#include "papers/messages/protocols.h"

namespace pinion::transfer {

bool bounce_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  return buffer.bounce(offset, at_most, part);
}

}  // namespace pinion::transfer
