#include "base/loaded_objects.h"

#include <gnu/lib-names.h>

#include <atomic>

namespace pinion {

namespace {

bool is_named(const ElfObject& object, const char* name) {
  const char* const own = object.own_name();
  return own != nullptr && is_same(own, name);
}

/// Both are null until they are first needed. Threads may find them at the same time: they find the same.
constinit std::atomic<const link_map*> g_c_library{nullptr};
constinit std::atomic<IterateObjects*> g_iterate{nullptr};

/// The C library; null where it is not found. Reads the list without its lock: the objects up to the C
/// library were there from the beginning, and stay.
const link_map* c_library() {
  const link_map* map = g_c_library.load(std::memory_order_relaxed);
  if (map != nullptr) return map;
  map = _r_debug.r_map;
  while (map != nullptr && !is_named({map->l_addr, map->l_ld}, LIBC_SO)) map = map->l_next;
  g_c_library.store(map, std::memory_order_relaxed);
  return map;
}

void* find_in_c_library(const SymbolName& name) {
  const link_map* const library = c_library();
  return library == nullptr ? nullptr : ElfObject(library->l_addr, library->l_ld).function(name);
}

}  // namespace

IterateObjects* own_dl_iterate_phdr() {
  IterateObjects* known = g_iterate.load(std::memory_order_relaxed);
  if (known != nullptr) return known;
  known = reinterpret_cast<IterateObjects*>(find_in_c_library(SymbolName("dl_iterate_phdr")));
  // A program may have a copy of the list's head, which is empty until the program is relocated.
  if (known == nullptr) return &::dl_iterate_phdr;
  g_iterate.store(known, std::memory_order_relaxed);
  return known;
}

void* c_library_function(const char* name) {
  const SymbolName wanted(name);
  void* found = find_in_c_library(wanted);
  if (found != nullptr) return found;
  for_each_loaded_object([&](const LoadedObject& object) {
    const ElfObject tables = object.tables();
    // Before glibc 2.34 some of its functions lie in libdl.
    if (is_named(tables, LIBC_SO) || is_named(tables, LIBDL_SO)) found = tables.function(wanted);
    return found != nullptr;
  });
  return found;
}

std::size_t function_bytes(const void* function, const char* name) {
  std::size_t bytes = 0;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.holds(function)) return false;
    const ElfW(Sym)* const symbol = object.tables().definition(SymbolName(name));
    const bool is_its = symbol != nullptr && object.base() + symbol->st_value == Range::of(function, 1).begin;
    if (is_its) bytes = symbol->st_size;
    return true;
  });
  return bytes;
}

}  // namespace pinion
