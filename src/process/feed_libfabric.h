// libfabric's registration cache gets memory events from Pinion (monitor/fabric_monitor.h), as far as the
// options in the environment let it. Ordinary code, any thread.
#pragma once

#include "base/error.h"

namespace pinion {

/// Imports the monitor, with the errors of fabric_monitor::import(). EINVAL: the options are wrong.
Error feed_libfabric(const void* function);

}  // namespace pinion
