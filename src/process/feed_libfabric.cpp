#include "process/feed_libfabric.h"

#include "lease/engine_options.h"
#include "monitor/fabric_monitor.h"

namespace pinion {

Error feed_libfabric(const void* function) {
  return fabric_monitor::import(function, [](fabric_monitor::Wishes& wishes) -> Error {
    Options options;
    if (Error bad = options_from_environment(options)) return bad;
    wishes = {options.off || !options.feed_libfabric, options.monitor};
    return {};
  });
}

}  // namespace pinion
