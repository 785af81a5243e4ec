#include "monitor/transparent_hugepages.h"

#include <cstddef>
#include <cstring>

#include "monitor/own_process.h"

namespace pinion {

TransparentHugepages transparent_hugepages() {
  char enabled[64] = {};
  KernelText text("/sys/kernel/mm/transparent_hugepage/enabled");
  for (std::size_t i = 0; i + 1 < sizeof enabled && text.current() != KernelText::kEnd; text.advance())
    enabled[i++] = static_cast<char>(text.current());
  if (enabled[0] == '\0') return TransparentHugepages::absent;
  return std::strstr(enabled, "[never]") == nullptr ? TransparentHugepages::given
                                                    : TransparentHugepages::never;
}

}  // namespace pinion
