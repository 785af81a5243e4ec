// Pipeline: a piece is registered while the pieces before it are on the wire. The first part is copied, so
// the wire starts at once. The domain's retention decides whether pieces stay pinned.
#include <algorithm>

#include "papers/messages/protocols.h"

namespace pinion::transfer {

bool pipeline_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  if (offset == 0 && buffer.bounce(0, at_most, part)) return true;
  return registered_piece(buffer, offset, at_most, part);
}

bool registered_piece(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  if (!buffer.refused) {
    if (buffer.lease(offset, std::min(buffer.rest(offset), buffer.options().piece_bytes), part)) return true;
    buffer.refused = true;
  }
  return bounce_part(buffer, offset, at_most, part);
}

}  // namespace pinion::transfer
