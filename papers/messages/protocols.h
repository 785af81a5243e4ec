// The protocols for large messages. Both sides of a message run one, each by its own choice: it makes the
// parts of this side's buffer. The data moves the same way for all parts (channel.h).
// Its only state is the buffer's; callers hold that buffer's guard.
#pragma once

#include <cstddef>

#include "papers/messages/buffer.h"

namespace pinion::transfer {

/// Each makes the part that begins at `offset`. `at_most` bounds a part that is copied: more cannot be moved
/// yet. False: all chunks are taken; a later try succeeds.
bool bounce_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);
bool rendezvous_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);
bool pipeline_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);
bool prepared_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);

/// A piece of the pipeline's size is leased, or copied where its registration is refused.
bool registered_piece(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);

/// Takes the protocol from the buffer.
bool next_part(Buffer& buffer, std::size_t offset, std::size_t at_most, Part& part);

/// Names, as options and the bench use them.
const char* name_of(Protocol protocol);

}  // namespace pinion::transfer
