#include "base/loaded_objects.h"

#include <gnu/lib-names.h>

#include <atomic>

namespace pinion {

namespace {

/// Before glibc 2.34 some of its functions lie in libdl.
bool is_c_library(const ElfObject& object) {
  const char* const name = object.own_name();
  return name != nullptr && (is_same(name, LIBC_SO) || is_same(name, LIBDL_SO));
}

/// Reads the list without its lock: the objects up to the C library were there from the beginning, and stay.
void* find_in_list() {
  const SymbolName name("dl_iterate_phdr");
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next) {
    const ElfObject object(map->l_addr, map->l_ld);
    if (!is_c_library(object)) continue;
    if (void* const found = object.function(name)) return found;
  }
  return nullptr;
}

/// Null until it is first needed. Threads may find it at the same time: they find the same.
constinit std::atomic<IterateObjects*> g_iterate{nullptr};

}  // namespace

IterateObjects* own_dl_iterate_phdr() {
  IterateObjects* known = g_iterate.load(std::memory_order_relaxed);
  if (known != nullptr) return known;
  known = reinterpret_cast<IterateObjects*>(find_in_list());
  // A program may have a copy of the list's head, which is empty until the program is relocated.
  if (known == nullptr) return &::dl_iterate_phdr;
  g_iterate.store(known, std::memory_order_relaxed);
  return known;
}

void* c_library_function(const char* name) {
  const SymbolName wanted(name);
  void* found = nullptr;
  for_each_loaded_object([&](const LoadedObject& object) {
    const ElfObject tables = object.tables();
    if (is_c_library(tables)) found = tables.function(wanted);
    return found != nullptr;
  });
  return found;
}

}  // namespace pinion
