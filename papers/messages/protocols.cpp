#include "papers/messages/protocols.h"

namespace pinion::transfer {

bool next_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part) {
  if (buffer.at_hand && buffer.at_hand->offset == offset) {
    part = *buffer.at_hand;
    buffer.at_hand.reset();
    return true;
  }
  switch (buffer.protocol) {
    case Protocol::rendezvous:
      return rendezvous_part(buffer, offset, at_most, part);
    case Protocol::pipeline:
      return pipeline_part(buffer, offset, at_most, part);
    case Protocol::prepared:
      return prepared_part(buffer, offset, at_most, part);
    case Protocol::automatic:  // chosen by now
    case Protocol::bounce:
      break;
  }
  return bounce_part(buffer, offset, at_most, part);
}

const char* name_of(Protocol protocol) {
  switch (protocol) {
    case Protocol::automatic:
      return "automatic";
    case Protocol::bounce:
      return "bounce";
    case Protocol::rendezvous:
      return "rendezvous";
    case Protocol::pipeline:
      return "pipeline";
    case Protocol::prepared:
      return "prepared";
  }
  return "";
}

}  // namespace pinion::transfer
