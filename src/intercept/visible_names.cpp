#include "intercept/visible_names.h"

#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/elf_object.h"
#include "base/loaded_objects.h"
#include "intercept/cuda/calls.h"
#include "intercept/exports.h"
#include "intercept/lookup.h"
#include "intercept/mpi/entries.h"
#include "monitor/system_call.h"

extern "C" {
[[gnu::visibility("hidden")]] extern char pinion_mpi_first_entry[], pinion_mpi_resolvers[];
[[gnu::visibility("hidden")]] extern char pinion_cuda_first_entry[], pinion_cuda_resolvers[];
}

namespace pinion {

namespace {

constexpr std::size_t kMpiNames =
#include "entry_count.inc"
    ;
constexpr std::size_t kStride = 16;  ///< of entries and resolvers (entries.S)

/// The names of one library. Addresses are computed where they are used: no table of them is relocated yet.
template <NamesOf library>
struct Names;

template <>
struct Names<NamesOf::mpi> {
  static constexpr std::size_t kCount = kMpiNames;
  static ElfW(Addr) entries() { return reinterpret_cast<ElfW(Addr)>(pinion_mpi_first_entry); }
  static ElfW(Addr) resolvers() { return reinterpret_cast<ElfW(Addr)>(pinion_mpi_resolvers); }
  /// Whether it decides that the library is there.
  static bool tells(const char* name) { return is_same(name, "PMPI_Init"); }
};

template <>
struct Names<NamesOf::cuda> {
  static constexpr std::size_t kCount = cuda::kCallCount;
  static ElfW(Addr) entries() { return reinterpret_cast<ElfW(Addr)>(pinion_cuda_first_entry); }
  static ElfW(Addr) resolvers() { return reinterpret_cast<ElfW(Addr)>(pinion_cuda_resolvers); }
  static bool tells(const char*) { return true; }
};

template <NamesOf library>
ElfW(Addr) entry_at(std::size_t i) {
  return Names<library>::entries() + i * kStride;
}

/// The number of names or more for an address outside of the entries.
template <NamesOf library>
std::size_t index_of(ElfW(Addr) address) {
  return (address - entry_at<library>(0)) / kStride;
}

/// Whether some other object defines the name.
template <NamesOf library>
bool is_present[Names<library>::kCount];
/// The address of a variable, where the first definition of the name is one.
template <NamesOf library>
ElfW(Addr) variables[Names<library>::kCount];
/// The library was still missing when the preload was relocated.
template <NamesOf library>
bool is_late = false;

/// The program's constructors run: everything is relocated, and libc may be called.
bool g_started = false;

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

void set_slot(ElfW(Addr) base, ElfW(Addr) * slot, ElfW(Addr) value) {
  const bool read_only = is_read_only(base, slot);
  if (read_only && !protect(slot, slot + 1, PROT_READ | PROT_WRITE)) return;
  *slot = value;
  if (read_only) protect(slot, slot + 1, PROT_READ);
}

template <NamesOf library, class F>
void for_each_own_symbol(F f) {
  const ElfW(Addr) base = own_base();
  const ElfObject own(base, _DYNAMIC);
  own.for_each_definition([&](ElfW(Sym) * symbol) {
    const std::size_t i = index_of<library>(base + symbol->st_value);
    if (i < Names<library>::kCount) f(symbol, i, own.name_of(*symbol), base);
  });
}

bool is_variable(const ElfW(Sym) & symbol) { return ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT; }

struct Symbols {
  ElfW(Sym) * first = nullptr;
  ElfW(Sym) * last = nullptr;
};

/// The first and the last of our symbols, after looking which of their names other objects define.
template <NamesOf library>
Symbols look_at_names() {
  constexpr std::size_t kNames = Names<library>::kCount;
  static SymbolName names[kNames];
  Symbols ours;
  for_each_own_symbol<library>([&](ElfW(Sym) * symbol, std::size_t i, const char* text, ElfW(Addr)) {
    names[i] = SymbolName(text);
    if (!ours.first || symbol < ours.first) ours.first = symbol;
    if (symbol > ours.last) ours.last = symbol;
  });
  for_each_other_object([&](const ElfObject& object, ElfW(Addr) base) {
    for (std::size_t i = 0; i < kNames; ++i) {
      if (is_present<library>[i] || !names[i].text) continue;
      const ElfW(Sym)* const found = object.definition(names[i]);
      if (found == nullptr) continue;
      is_present<library>[i] = true;
      if (is_variable(*found)) variables<library>[i] = base + found->st_value;
    }
  });
  for (std::size_t i = 0; i < kNames; ++i)
    if (names[i].text && !is_present<library>[i] && Names<library>::tells(names[i].text))
      is_late<library> = true;
  return ours;
}

template <NamesOf library>
void write_symbols(const Symbols& ours) {
  if (!protect(ours.first, ours.last + 1, PROT_READ | PROT_WRITE)) return;
  for_each_own_symbol<library>([&](ElfW(Sym) * symbol, std::size_t i, const char*, ElfW(Addr) base) {
    if (variables<library>[i] != 0) {
      symbol->st_value = 0;  // as good as undefined
    } else if (is_late<library>) {
      symbol->st_info = ELF64_ST_INFO(ELF64_ST_BIND(symbol->st_info), STT_GNU_IFUNC);
      symbol->st_value = Names<library>::resolvers() + i * kStride - base;
    } else if (!is_present<library>[i]) {
      symbol->st_value = 0;
    }
  });
  protect(ours.first, ours.last + 1, PROT_READ);
}

/// Corrects references in objects that are relocated before the preload: weak ones to missing names become
/// null, and those to variables lead there.
template <NamesOf library>
void correct_references() {
  for_each_other_object([&](const ElfObject& object, ElfW(Addr) base) {
    if (base == 0) return;  // the program itself, which is relocated last
    object.for_each_slot([&](ElfW(Addr) * slot, ElfW(Addr) addend, const ElfW(Sym) & symbol) {
      const std::size_t i = index_of<library>(*slot - addend);
      if (i >= Names<library>::kCount) return;
      if (variables<library>[i] != 0)
        set_slot(base, slot, variables<library>[i] + addend);
      else if (!is_present<library>[i] && ELF64_ST_BIND(symbol.st_info) == STB_WEAK)
        set_slot(base, slot, 0);
    });
  });
}

template <NamesOf library>
void write_names() {
  const Symbols ours = look_at_names<library>();
  if (!ours.first) return;
  write_symbols<library>(ours);
  correct_references<library>();
}

// ---- the functions behind dlsym and dlvsym, and the whole preload where Pinion is off ----

/// The address of the symbol; null: it is neither a function nor a variable.
void* address_of(const ElfW(Sym) * symbol, ElfW(Addr) base) {
  if (symbol == nullptr) return nullptr;
  const auto type = ELF64_ST_TYPE(symbol->st_info);
  return type == STT_FUNC || type == STT_OBJECT ? __builtin_bit_cast(void*, base + symbol->st_value)
                                                : nullptr;
}

/// The first definition of the name behind the preload, or else of any other object. Libraries that load
/// libcuda for themselves have variables of its names.
void* definition_behind(const SymbolName& name) {
  bool is_behind = false;
  void *behind = nullptr, *anywhere = nullptr;
  for (const link_map* map = _r_debug.r_map; map != nullptr && behind == nullptr; map = map->l_next) {
    if (map->l_ld == _DYNAMIC) {
      is_behind = true;
      continue;
    }
    void* const found = address_of(ElfObject(map->l_addr, map->l_ld).definition(name), map->l_addr);
    if (is_behind) behind = found;
    if (anywhere == nullptr) anywhere = found;
  }
  return behind != nullptr ? behind : anywhere;
}

/// The value of a variable of the environment, as the kernel gave it to the process; null: it is unset. The C
/// library knows none yet; the dynamic linker keeps the place on the stack.
const char* initial_variable(const char* name) {
  char** words = nullptr;
  for_each_other_object([&](const ElfObject& object, ElfW(Addr) base) {
    const ElfW(Sym)* const stack = object.definition(SymbolName("__libc_stack_end"));
    if (stack != nullptr) words = *reinterpret_cast<char***>(base + stack->st_value);
  });
  if (words == nullptr) return nullptr;
  const auto arguments = *reinterpret_cast<const std::size_t*>(words);
  for (char** variable = words + 1 + arguments + 1; *variable != nullptr; ++variable) {
    const char *text = *variable, *rest = name;
    while (*rest != '\0' && *text == *rest) ++text, ++rest;
    if (*rest == '\0' && *text == '=') return text + 1;
  }
  return nullptr;
}

/// Whether the list of options says `off`, by its last word about it.
bool says_off(const char* options) {
  bool off = false;
  const auto is = [&](const char* word) {
    const char* text = options;
    while (*word != '\0' && *text == *word) ++text, ++word;
    return *word == '\0' && (*text == ',' || *text == '\0');
  };
  while (*options != '\0') {
    if (is("off") || is("off=yes")) off = true;
    if (is("on") || is("off=no")) off = false;
    while (*options != '\0' && *options != ',') ++options;
    if (*options == ',') ++options;
  }
  return off;
}

/// Commands below another root directory are started without the preload, also where Pinion is off.
bool is_kept(const char* name) { return is_same(name, "chroot"); }

/// Takes the preload's names out of sight. References of objects that are relocated before it lead on.
void hide_all() {
  const ElfW(Addr) base = own_base();
  const ElfObject own(base, _DYNAMIC);
  for_each_other_object([&](const ElfObject& object, ElfW(Addr) other) {
    if (other == 0) return;  // the program itself, which is relocated last
    object.for_each_slot([&](ElfW(Addr) * slot, ElfW(Addr) addend, const ElfW(Sym) & symbol) {
      const SymbolName name(object.name_of(symbol));
      const ElfW(Sym)* const ours = own.definition(name);
      if (ours == nullptr || *slot - addend != base + ours->st_value || is_kept(name.text)) return;
      const auto next = reinterpret_cast<ElfW(Addr)>(definition_behind(name));
      if (next != 0 || ELF64_ST_BIND(symbol.st_info) == STB_WEAK)
        set_slot(other, slot, next != 0 ? next + addend : 0);
    });
  });
  Symbols ours;
  const auto widen = [&](ElfW(Sym) * symbol) {
    if (ours.first == nullptr || symbol < ours.first) ours.first = symbol;
    if (symbol > ours.last) ours.last = symbol;
  };
  own.for_each_definition(widen);
  if (ours.first == nullptr || !protect(ours.first, ours.last + 1, PROT_READ | PROT_WRITE)) return;
  own.for_each_definition([&](ElfW(Sym) * symbol) {
    if (!is_kept(own.name_of(*symbol))) symbol->st_value = 0;  // as good as undefined
  });
  protect(ours.first, ours.last + 1, PROT_READ);
}

void find_lookups() {
  pinion_real_dlsym.store(reinterpret_cast<Dlsym>(definition_behind(SymbolName("dlsym"))),
                          std::memory_order_relaxed);
  pinion_real_dlvsym.store(reinterpret_cast<Dlvsym>(definition_behind(SymbolName("dlvsym"))),
                           std::memory_order_relaxed);
}

/// Notes where the objects end that the program starts with.
void mark_start() {
  for (const link_map* map = _r_debug.r_map; map != nullptr; map = map->l_next)
    last_object_at_start = map->l_ld;
}

[[gnu::constructor]] void start() { g_started = true; }

/// Calls f(object, base) for each loaded object other than the preload, until it returns true.
template <class F>
void for_each_other_object_now(F f) {
  if (!g_started) {
    bool done = false;
    for_each_other_object([&](const ElfObject& object, ElfW(Addr) base) { done = done || f(object, base); });
    return;
  }
  for_each_loaded_object([&](const LoadedObject& object) {
    return object.dynamic() != _DYNAMIC && object.dynamic() != nullptr && f(object.tables(), object.base());
  });
}

/// Whether a loaded object other than the preload defines the name now.
bool is_defined(const SymbolName& name) {
  bool found = false;
  for_each_other_object_now(
      [&](const ElfObject& object, ElfW(Addr)) { return found = object.defines(name), found; });
  return found;
}

/// Whether the object is being relocated: a reference of its own to the name is still empty.
bool is_being_bound(const ElfObject& object, const SymbolName& name) {
  bool empty = false;
  object.for_each_slot([&](const ElfW(Addr) * slot, ElfW(Addr), const ElfW(Sym) & symbol) {
    empty = empty || (*slot == 0 && is_same(object.name_of(symbol), name.text));
  });
  return empty;
}

/// Where a library keeps libcuda's functions in variables of their names, it means these itself. The address
/// of that variable; 0: the name stands for a function.
ElfW(Addr) variable_of(const SymbolName& name) {
  ElfW(Addr) variable = 0;
  bool is_function = false, is_bound = false;
  for_each_other_object_now([&](const ElfObject& object, ElfW(Addr) base) {
    const ElfW(Sym)* const found = object.definition(name);
    if (found == nullptr) return false;
    if (!is_variable(*found)) return is_function = true, false;
    is_bound = is_being_bound(object, name);
    if (variable == 0 || is_bound) variable = base + found->st_value;
    return is_bound;
  });
  return is_bound || !is_function ? variable : 0;
}

}  // namespace

bool is_missing(NamesOf library, const char* name) {
  const bool late = library == NamesOf::mpi ? is_late<NamesOf::mpi> : is_late<NamesOf::cuda>;
  return late && !is_defined(SymbolName(name));
}

extern "C" {

/// Called once, while the preload is relocated (mpi/entries.S).
[[gnu::visibility("hidden"), gnu::used]] void* pinion_write_names() {
  find_lookups();
  const char* const options = initial_variable("PINION");
  if (options != nullptr && says_off(options)) {
    hide_all();
  } else {
    write_names<NamesOf::mpi>();
    write_names<NamesOf::cuda>();
  }
  mark_start();
  return pinion_mpi_first_entry;
}

/// The target of a name that is bound now, in a program that is not linked with the library.
[[gnu::visibility("hidden"), gnu::used]] void* pinion_mpi_resolve(std::size_t entry) {
  if (is_missing(NamesOf::mpi, mpi::kEntryNames[entry])) return nullptr;
  return reinterpret_cast<void*>(entry_at<NamesOf::mpi>(entry));
}
[[gnu::visibility("hidden"), gnu::used]] void* pinion_cuda_resolve(std::size_t entry) {
  const SymbolName name(cuda::kCallNames[entry]);
  if (!is_defined(name)) return nullptr;
  const ElfW(Addr) variable = variable_of(name);
  return reinterpret_cast<void*>(variable != 0 ? variable : entry_at<NamesOf::cuda>(entry));
}
}

}  // namespace pinion
