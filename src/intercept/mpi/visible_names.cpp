#include "intercept/mpi/visible_names.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include <utility>

#include "intercept/elf_object.h"
#include "intercept/mpi/entries.h"
#include "monitor/system_call.h"

extern "C" {
[[gnu::visibility("hidden")]] extern char pinion_mpi_first_entry[], pinion_mpi_resolvers[];
}

namespace pinion::mpi {

namespace {

constexpr std::size_t kNames =
#include "entry_count.inc"
    ;
constexpr std::size_t kStride = 16;  ///< of entries and resolvers (entries.S)

/// The program's constructors run: everything is relocated, and libc may be called.
bool g_started = false;

ElfW(Addr) entry_at(std::size_t i) {
  return reinterpret_cast<ElfW(Addr)>(pinion_mpi_first_entry) + i * kStride;
}

/// kNames or more for an address outside of the entries.
std::size_t index_of(ElfW(Addr) address) { return (address - entry_at(0)) / kStride; }

// ---- while the preload is relocated: nothing is called through the dynamic linker's tables ----

/// Gives the protection to the pages of a range. The kernel's page size is unknown yet.
bool protect(const void* begin, const void* end, int protection) {
  constexpr ElfW(Addr) kLeast = 1 << 12, kMost = 1 << 16;
  const auto from = reinterpret_cast<ElfW(Addr)>(begin), to = reinterpret_cast<ElfW(Addr)>(end);
  for (ElfW(Addr) page = kLeast; page <= kMost; page *= 2) {
    const ElfW(Addr) start = from & ~(page - 1);
    if (raw_system_call(SYS_mprotect, arguments_of(start, to - start, protection)) == 0) return true;
  }
  return false;
}

template <class F>
void for_each_other_object(F f) {
  for (const link_map* map = _r_debug.r_map; map; map = map->l_next)
    if (map->l_ld != _DYNAMIC) f(ElfObject(map->l_addr, map->l_ld), map->l_addr);
}

ElfW(Addr) own_base() {
  for (const link_map* map = _r_debug.r_map; map; map = map->l_next)
    if (map->l_ld == _DYNAMIC) return map->l_addr;
  return 0;
}

/// Whether the slot lies in the pages that the dynamic linker made read-only after it had filled them.
bool is_read_only(ElfW(Addr) base, const void* slot) {
  const auto* const header = reinterpret_cast<const ElfW(Ehdr)*>(base);
  const auto* const segments = reinterpret_cast<const ElfW(Phdr)*>(base + header->e_phoff);
  const ElfW(Addr) offset = reinterpret_cast<ElfW(Addr)>(slot) - base;
  for (unsigned i = 0; i < header->e_phnum; ++i)
    if (segments[i].p_type == PT_GNU_RELRO && offset - segments[i].p_vaddr < segments[i].p_memsz) return true;
  return false;
}

void set_to_null(ElfW(Addr) base, ElfW(Addr) * slot) {
  const bool read_only = is_read_only(base, slot);
  if (read_only && !protect(slot, slot + 1, PROT_READ | PROT_WRITE)) return;
  *slot = 0;
  if (read_only) protect(slot, slot + 1, PROT_READ);
}

/// Whether some other object defines the name.
bool is_present[kNames];
/// MPI was still missing when the preload was relocated.
bool g_late = false;

template <class F>
void for_each_own_symbol(F f) {
  const ElfW(Addr) base = own_base();
  const ElfObject own(base, _DYNAMIC);
  own.for_each_definition([&](ElfW(Sym) * symbol) {
    const std::size_t i = index_of(base + symbol->st_value);
    if (i < kNames) f(symbol, i, own.name_of(*symbol), base);
  });
}

/// The first and the last of our symbols, after looking which of their names other objects define.
std::pair<ElfW(Sym) *, ElfW(Sym) *> look_at_names() {
  static SymbolName names[kNames];
  ElfW(Sym)* first = nullptr, *last = nullptr;
  for_each_own_symbol([&](ElfW(Sym) * symbol, std::size_t i, const char* text, ElfW(Addr)) {
    names[i] = SymbolName(text);
    if (!first || symbol < first) first = symbol;
    if (symbol > last) last = symbol;
  });
  for_each_other_object([&](const ElfObject& object, ElfW(Addr)) {
    for (std::size_t i = 0; i < kNames; ++i)
      if (!is_present[i] && names[i].text) is_present[i] = object.defines(names[i]);
  });
  g_late = true;
  for (std::size_t i = 0; i < kNames; ++i)
    if (is_present[i] && is_same(names[i].text, "PMPI_Init")) g_late = false;
  return {first, last};
}

void write_symbols(ElfW(Sym) * first, ElfW(Sym) * last) {
  if (!protect(first, last + 1, PROT_READ | PROT_WRITE)) return;
  for_each_own_symbol([&](ElfW(Sym) * symbol, std::size_t i, const char*, ElfW(Addr) base) {
    if (g_late) {
      symbol->st_info = ELF64_ST_INFO(ELF64_ST_BIND(symbol->st_info), STT_GNU_IFUNC);
      symbol->st_value = reinterpret_cast<ElfW(Addr)>(pinion_mpi_resolvers) + i * kStride - base;
    } else if (!is_present[i]) {
      symbol->st_value = 0;  // as good as undefined
    }
  });
  protect(first, last + 1, PROT_READ);
}

/// Sets weak references to missing names to null, in objects that are relocated before the preload.
void clear_weak_references() {
  for_each_other_object([&](const ElfObject& object, ElfW(Addr) base) {
    if (base == 0) return;  // the program itself, which is relocated last
    object.for_each_slot([&](ElfW(Addr) * slot, ElfW(Addr) addend, const ElfW(Sym) & symbol) {
      const std::size_t i = index_of(*slot - addend);
      if (i < kNames && !is_present[i] && ELF64_ST_BIND(symbol.st_info) == STB_WEAK) set_to_null(base, slot);
    });
  });
}

[[gnu::constructor]] void start() { g_started = true; }

/// Whether a loaded object other than the preload defines the name now.
bool is_defined(const SymbolName& name) {
  struct Search {
    const SymbolName& name;
    bool found = false;
  } search{name};
  if (!g_started) {
    for_each_other_object(
        [&](const ElfObject& object, ElfW(Addr)) { search.found = search.found || object.defines(name); });
    return search.found;
  }
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        for (unsigned i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
          const auto* const dynamic =
              reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
          wanted.found = dynamic != _DYNAMIC && ElfObject(info->dlpi_addr, dynamic).defines(wanted.name);
        }
        return static_cast<int>(wanted.found);
      },
      &search);
  return search.found;
}

}  // namespace

bool is_missing(std::size_t entry) { return g_late && !is_defined(SymbolName(kEntryNames[entry])); }

std::size_t entry_index(const char* name) {
  std::size_t i = 0;
  while (i < kEntryCount && !is_same(kEntryNames[i], name)) ++i;
  return i;
}

extern "C" {

/// Called once, while the preload is relocated (entries.S).
[[gnu::visibility("hidden"), gnu::used]] void* pinion_mpi_write_names() {
  const auto [first, last] = look_at_names();
  if (first) {
    write_symbols(first, last);
    clear_weak_references();
  }
  return pinion_mpi_first_entry;
}

/// The target of a name that is bound now, in a program that is not linked with MPI.
[[gnu::visibility("hidden"), gnu::used]] void* pinion_mpi_resolve(std::size_t entry) {
  return is_missing(entry) ? nullptr : reinterpret_cast<void*>(entry_at(entry));
}
}

}  // namespace pinion::mpi
