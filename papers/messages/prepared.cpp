// Prepared: parts follow the registrations that exist, by pinion_prepare() or from earlier transfers. The
// memory between them is registered in pieces.
#include "papers/messages/protocols.h"

namespace pinion::transfer {

bool prepared_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  return buffer.lease_registered(offset, part) || registered_piece(buffer, offset, at_most, part);
}

}  // namespace pinion::transfer
