#include "device/kernel/writable_memory.h"

#include <sys/mman.h>

#include <algorithm>

#include "device/kernel/mapped_pages.h"
#include "monitor/mapping_reader.h"

namespace pinion {

namespace {

Error refusal(Range range, const char* why) {
  return Error::make(EFAULT, "memory %#zx-%#zx %s", range.begin, range.end, why);
}

Error not_mapped(Range range) { return refusal(range, "is not mapped (or not all of it)"); }

Error check(Range range, bool writable, bool private_file) {
  if (!writable) return refusal(range, "is not writable (or not all of it)");
  if (private_file) return refusal(range, "is a private mapping of a file, which pinning would copy");
  return {};
}

}  // namespace

Error check_writable_memory(Range range) {
  const int file = mapped_pages().question_file();
  if (file < 0) return check_writable_memory_by_text(range);
  AnsweredMapping mapping;
  for (Address at = range.begin; at < range.end; at = mapping.range.end) {
    if (!ask_for_mapping(file, at, mapping)) return not_mapped(range);
    const bool private_file = mapping.of_file && !mapping.is_shared && mapping.page_bytes == page_size();
    if (Error error = check(range, mapping.writable, private_file)) return error;
  }
  return {};
}

Error check_writable_memory_by_text(Range range) {
  Error error;
  Address known = range.begin;
  const bool read = for_each_mapping(range, [&](const Mapping& mapping) {
    if (error || mapping.range.begin > known) return;  // a gap
    known = mapping.range.end;
    const Range part{std::max(range.begin, mapping.range.begin), std::min(range.end, mapping.range.end)};
    const bool private_file =
        mapping.inode != 0 && mapping.is_private && read_large_mappings().around(part).empty();
    error = check(range, (mapping.protection & PROT_WRITE) != 0, private_file);
  });
  if (error) return error;
  return read && known >= range.end ? Error{} : not_mapped(range);
}

}  // namespace pinion
