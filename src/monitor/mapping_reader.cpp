#include "monitor/mapping_reader.h"

#include <sys/mman.h>
#include <sys/sysmacros.h>

namespace pinion {

/// One line: "begin-end perms offset major:minor inode   path".
bool MappingReader::next(Mapping& mapping, std::string* path) {
  mapping.range.begin = text_.number(16);
  mapping.range.end = text_.number(16);
  rights(mapping);
  mapping.offset = text_.number(16);
  const auto major = static_cast<unsigned>(text_.number(16));
  mapping.device = makedev(major, static_cast<unsigned>(text_.number(16)));
  mapping.inode = text_.number(10);
  while (text_.current() == ' ') text_.advance();
  mapping.system_v = true;
  if (path != nullptr) path->clear();
  const char* expected = "/SYSV";
  for (; text_.current() != '\n' && text_.current() != KernelText::kEnd; text_.advance()) {
    if (*expected != '\0') mapping.system_v = mapping.system_v && text_.current() == *expected++;
    if (path != nullptr) *path += static_cast<char>(text_.current());
  }
  mapping.system_v = mapping.system_v && *expected == '\0';
  if (text_.current() == KernelText::kEnd) return false;
  text_.advance();
  return true;
}

void MappingReader::rights(Mapping& mapping) {
  mapping.protection = 0;
  for (; text_.current() != ' ' && text_.current() != KernelText::kEnd; text_.advance()) {
    if (text_.current() == 'r') mapping.protection |= PROT_READ;
    if (text_.current() == 'w') mapping.protection |= PROT_WRITE;
    if (text_.current() == 'x') mapping.protection |= PROT_EXEC;
    mapping.is_private = text_.current() == 'p';
  }
  text_.advance();
}

}  // namespace pinion
