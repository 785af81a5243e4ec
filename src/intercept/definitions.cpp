#include "intercept/definitions.h"

#include <elf.h>
#include <link.h>

#include "intercept/elf_object.h"

namespace pinion {

namespace {

void* definition_in(const dl_phdr_info& object, const char* name) {
  for (const ElfW(Phdr)* part = object.dlpi_phdr; part != object.dlpi_phdr + object.dlpi_phnum; ++part) {
    if (part->p_type != PT_DYNAMIC) continue;
    const auto* const dynamic = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + part->p_vaddr);
    const ElfW(Sym)* const symbol = ElfObject(object.dlpi_addr, dynamic).definition(SymbolName(name));
    if (symbol != nullptr && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC)
      return reinterpret_cast<void*>(object.dlpi_addr + symbol->st_value);
  }
  return nullptr;
}

/// Empty: none.
Range segment_in(const dl_phdr_info& object, const void* address) {
  for (const ElfW(Phdr)* part = object.dlpi_phdr; part != object.dlpi_phdr + object.dlpi_phnum; ++part) {
    const Address begin = object.dlpi_addr + part->p_vaddr;
    const Range segment{begin, begin + part->p_memsz};
    if (part->p_type == PT_LOAD && segment.contains(Range::of(address, 1))) return segment;
  }
  return {};
}

bool holds(const dl_phdr_info& object, const void* address) { return !segment_in(object, address).empty(); }

bool is_preload(const dl_phdr_info& object) {
  return holds(object, reinterpret_cast<const void*>(&definition_beside));
}

/// Calls `visit(object)` for each loaded object until it returns true.
template <class Visit>
void for_each_object(Visit visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* v) { return (*static_cast<Visit*>(v))(*object) ? 1 : 0; },
      &visit);
}

}  // namespace

Range segment_around(const void* code) {
  Range found;
  for_each_object([&](const dl_phdr_info& object) {
    found = segment_in(object, code);
    return !found.empty();
  });
  return found;
}

bool is_code(const void* address) {
  bool found = false;
  for_each_object([&](const dl_phdr_info& object) {
    for (const ElfW(Phdr)* part = object.dlpi_phdr; part != object.dlpi_phdr + object.dlpi_phnum; ++part)
      if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 &&
          reinterpret_cast<Address>(address) - (object.dlpi_addr + part->p_vaddr) < part->p_memsz)
        found = true;
    return found;
  });
  return found;
}

void* definition_beside(const void* code, const char* name) {
  void* found = nullptr;
  for_each_object([&](const dl_phdr_info& object) {
    if (!holds(object, code)) return false;
    found = definition_in(object, name);
    return true;
  });
  return found;
}

bool is_defined_before_preload(const char* name) {
  bool found = false, is_program = true;
  for_each_object([&](const dl_phdr_info& object) {
    if (is_preload(object)) return true;
    found = !is_program && definition_in(object, name) != nullptr;
    is_program = false;
    return found;
  });
  return found;
}

void* first_definition(Where where, const char* name) {
  void* found = nullptr;
  bool reached = where == Where::anywhere;
  for_each_object([&](const dl_phdr_info& object) {
    if (is_preload(object)) {
      reached = true;
      return false;
    }
    if (reached) found = definition_in(object, name);
    return found != nullptr;
  });
  return found;
}

void* libc_definition(const char* name) {
  void* const found = first_definition(Where::behind_preload, name);
  return found ? found : first_definition(Where::anywhere, name);
}

}  // namespace pinion
