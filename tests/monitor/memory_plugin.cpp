// A library with a large buffer in its data, to be loaded, used and unloaded.
#include <cstddef>

extern "C" {
char plugin_buffer[std::size_t{1} << 18] = {1};  // not zeroes: mapped from the file
extern const std::size_t plugin_buffer_bytes = sizeof plugin_buffer;
/// Called when the library goes; its memory is there still.
void (*plugin_leaves)() = nullptr;
}

namespace {
__attribute__((destructor)) void leave() {
  if (plugin_leaves) plugin_leaves();
}
}  // namespace
