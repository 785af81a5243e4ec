// Whether a library hides from forked children the memory that it registers. libibverbs does by MADV_DONTFORK
// in its fork-safe mode, which is fixed at the first registration. No call tells: version 44 does it also
// where it says that it is unnecessary. Owns nothing. Any thread, outside of hooks.
#pragma once

#include "base/function_ref.h"
#include "base/range.h"

namespace pinion {

/// Registers a page between two others, by `make`, which ends the registration after calling `look`, and sees
/// whether the page has become a mapping of its own. True also where nothing could be registered or read.
bool hides_from_children(FunctionRef<void(Range page, FunctionRef<void()> look)> make);

}  // namespace pinion
