// Rendezvous: one lease over all of the message, without a copy. Beyond the largest registration, the rest
// goes in the pipeline's pieces.
#include "papers/messages/protocols.h"

namespace pinion::transfer {

bool rendezvous_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  if (buffer.lease(offset, buffer.rest(offset), part)) return true;
  buffer.protocol = Protocol::pipeline;
  return pipeline_part(buffer, offset, at_most, part);
}

}  // namespace pinion::transfer
