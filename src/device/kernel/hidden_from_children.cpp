#include "device/kernel/hidden_from_children.h"

#include <sys/mman.h>

#include "monitor/mapping_reader.h"

namespace pinion {

bool hides_from_children(FunctionRef<void(Range page, FunctionRef<void()> look)> make) {
  const std::size_t bytes = 3 * page_size();
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return true;
  const Address begin = reinterpret_cast<Address>(memory) + page_size();
  const Range page{begin, begin + page_size()};
  bool in_one_mapping = false;
  make(page, [&] {
    for_each_mapping(page,
                     [&](const Mapping& mapping) { in_one_mapping |= mapping.range.begin < page.begin; });
  });
  ::munmap(memory, bytes);
  return !in_one_mapping;
}

}  // namespace pinion
