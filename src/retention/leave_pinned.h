// Retention `leave-pinned`: a region stays until its memory changes or a limit needs room.
#pragma once

#include "retention/retention.h"

namespace pinion {

class LeavePinnedRetention final : public Retention {};

}  // namespace pinion
