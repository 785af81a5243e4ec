#include "intercept/definitions.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstring>

namespace pinion {

namespace {

/// The parts of an object's dynamic section that a lookup by name reads.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* strings = nullptr;
  const std::uint32_t* hash = nullptr;  ///< DT_GNU_HASH
};

Tables tables_of(const dl_phdr_info& object) {
  Tables tables;
  for (const ElfW(Phdr)* part = object.dlpi_phdr; part != object.dlpi_phdr + object.dlpi_phnum; ++part) {
    if (part->p_type != PT_DYNAMIC) continue;
    // The dynamic linker has made addresses of these offsets, except in the vdso.
    const auto at = [&](ElfW(Addr) address) {
      return reinterpret_cast<const void*>(address < object.dlpi_addr ? object.dlpi_addr + address : address);
    };
    for (const auto* entry = reinterpret_cast<const ElfW(Dyn)*>(object.dlpi_addr + part->p_vaddr);
         entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) tables.symbols = static_cast<const ElfW(Sym)*>(at(entry->d_un.d_ptr));
      if (entry->d_tag == DT_STRTAB) tables.strings = static_cast<const char*>(at(entry->d_un.d_ptr));
      if (entry->d_tag == DT_GNU_HASH) tables.hash = static_cast<const std::uint32_t*>(at(entry->d_un.d_ptr));
    }
  }
  return tables;
}

std::uint32_t gnu_hash(const char* name) {
  std::uint32_t hash = 5381;
  for (; *name != 0; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  return hash;
}

void* definition_in(const dl_phdr_info& object, const char* name) {
  const Tables tables = tables_of(object);
  if (!tables.symbols || !tables.strings || !tables.hash) return nullptr;
  const std::uint32_t bucket_count = tables.hash[0], first = tables.hash[1], bloom_words = tables.hash[2];
  const std::uint32_t* const buckets =
      tables.hash + 4 + std::size_t{bloom_words} * (sizeof(ElfW(Addr)) / sizeof(std::uint32_t));
  const std::uint32_t* const chain = buckets + bucket_count;
  if (bucket_count == 0) return nullptr;
  const std::uint32_t wanted = gnu_hash(name);
  for (std::uint32_t i = buckets[wanted % bucket_count]; i >= first && i != 0; ++i) {
    const ElfW(Sym)& symbol = tables.symbols[i];
    const bool is_function = (symbol.st_info & 0xF) == STT_FUNC && symbol.st_shndx != SHN_UNDEF;
    if ((chain[i - first] | 1) == (wanted | 1) && is_function &&
        std::strcmp(tables.strings + symbol.st_name, name) == 0)
      return reinterpret_cast<void*>(object.dlpi_addr + symbol.st_value);
    if ((chain[i - first] & 1) != 0) break;  // the bucket's last
  }
  return nullptr;
}

bool holds(const dl_phdr_info& object, const void* address) {
  const auto at = reinterpret_cast<ElfW(Addr)>(address);
  for (const ElfW(Phdr)* part = object.dlpi_phdr; part != object.dlpi_phdr + object.dlpi_phnum; ++part)
    if (part->p_type == PT_LOAD && at - (object.dlpi_addr + part->p_vaddr) < part->p_memsz) return true;
  return false;
}

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

void* definition_beside(const void* code, const char* name) {
  void* found = nullptr;
  for_each_object([&](const dl_phdr_info& object) {
    if (!holds(object, code)) return false;
    found = definition_in(object, name);
    return true;
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

}  // namespace pinion
