// Memory of this process that is resident. Any thread; takes some 0.1 ms.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace pinion::test {

/// In bytes, exact: counted page by page. (The sum in /proc/self/statm may be wrong by dozens of pages for
/// each core, as the kernel gathers it.) 0 where the kernel hides it.
inline std::size_t resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  std::size_t kib = 0;
  for (std::string word; rollup >> word;)
    if (word == "Rss:" && rollup >> kib) break;
  return kib * 1024;
}

}  // namespace pinion::test
