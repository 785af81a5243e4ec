// A system that charges untouched memory (vm.overcommit_memory=2), as far as the heap knows.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>

#include "monitor/mapping_reader.h"
#include "placement/kernel_pages.h"
#include "support/temporary_directory.h"

namespace pinion::test {

class StrictOvercommit {
 public:
  StrictOvercommit() {
    const std::string file = directory_.path() + "/overcommit_memory";
    std::ofstream(file) << "2\n";
    look_at_overcommit(file.c_str());
  }
  ~StrictOvercommit() { look_at_overcommit(); }
  StrictOvercommit(const StrictOvercommit&) = delete;
  StrictOvercommit& operator=(const StrictOvercommit&) = delete;

  /// Bytes of the process, or of a part, that the kernel would charge: private and writable.
  static std::size_t charged_bytes(Range part = {0, ~Address{0}}) {
    std::size_t bytes = 0;
    for_each_mapping(part, [&](const Mapping& mapping) {
      const Range common{std::max(mapping.range.begin, part.begin), std::min(mapping.range.end, part.end)};
      if (mapping.is_private && (mapping.protection & PROT_WRITE) != 0) bytes += common.bytes();
    });
    return bytes;
  }

 private:
  TemporaryDirectory directory_;
};

}  // namespace pinion::test
