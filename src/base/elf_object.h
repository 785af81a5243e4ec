// A loaded object as its dynamic section describes it: its name, the libraries that it needs, the names that
// it defines, and the slots that its relocations filled. Reads mapped memory only and makes no calls, so it
// works while the dynamic linker is still relocating. The caller guarantees that the object stays loaded.
#pragma once

#include <elf.h>
#include <link.h>

#include <cstddef>
#include <cstdint>

namespace pinion {

// Each file has a copy of its own: visible_names.cpp has compiler options of its own, and the linker must
// keep its copy apart.
namespace {

constexpr bool is_same(const char* a, const char* b) {
  while (*a && *a == *b) ++a, ++b;
  return *a == *b;
}

/// A symbol's name with its hash, as DT_GNU_HASH has it.
struct SymbolName {
  const char* text = nullptr;
  std::uint32_t hash = 0;
  constexpr SymbolName() = default;
  constexpr explicit SymbolName(const char* name) : text(name), hash(5381) {
    for (; *name; ++name) hash = hash * 33 + static_cast<unsigned char>(*name);
  }
};

class ElfObject {
 public:
  ElfObject(ElfW(Addr) base, const ElfW(Dyn) * dynamic) : base_(base), dynamic_(dynamic) {
    for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) read(*dynamic);
  }

  /// The object's definition of the name, or null. Of several versions that is the default one.
  const ElfW(Sym) * definition(const SymbolName& name) const {
    if (!symbols_ || !strings_) return nullptr;
    if (gnu_hash_) return passes_filter(name.hash) ? found_by_gnu_hash(name) : nullptr;
    return hash_ ? found_by_hash(name.text) : nullptr;
  }
  /// The function of that name that the object defines, or null.
  void* function(const SymbolName& name) const {
    const ElfW(Sym)* const symbol = definition(name);
    if (symbol == nullptr || ELF64_ST_TYPE(symbol->st_info) != STT_FUNC) return nullptr;
    return reinterpret_cast<void*>(base_ + symbol->st_value);
  }
  bool defines(const SymbolName& name) const { return definition(name) != nullptr; }

  const char* name_of(const ElfW(Sym) & symbol) const { return strings_ + symbol.st_name; }

  /// Whether the object gives its definition of the name a version.
  bool has_version(const SymbolName& name) const {
    const ElfW(Sym)* const symbol = definition(name);
    return symbol && versions_ && (versions_[symbol - symbols_] & 0x7fff) > VER_NDX_GLOBAL;
  }

  /// The name by which other objects need this one; null: it has none.
  const char* own_name() const {
    const char* name = nullptr;
    for_each_text(DT_SONAME, [&](const char* text) { name = text; });
    return name;
  }
  /// Calls f(name) for each library that the object needs.
  template <class F>
  void for_each_needed(F f) const {
    for_each_text(DT_NEEDED, f);
  }

  /// The symbols that the object defines. `f` takes a pointer to each; they lie in read-only memory.
  template <class F>
  void for_each_definition(F f) const {
    if (!symbols_ || !gnu_hash_) return;
    for (std::uint32_t b = 0; b < gnu_hash_[0]; ++b) {
      std::uint32_t i = buckets()[b];
      if (i == 0) continue;
      do f(&symbols_[i]);
      while (!(chain(i++) & 1));
    }
  }

  /// The slots that hold the address of a symbol: f(slot, addend, symbol).
  template <class F>
  void for_each_slot(F f) const {
    for_each_slot_of(relocations_, relocation_bytes_, f);
    for_each_slot_of(calls_, call_bytes_, f);
  }

 private:
#if defined(__x86_64__)
  static constexpr std::uint32_t kAbsolute = R_X86_64_64, kData = R_X86_64_GLOB_DAT,
                                 kCall = R_X86_64_JUMP_SLOT;
#else
  static constexpr std::uint32_t kAbsolute = R_AARCH64_ABS64, kData = R_AARCH64_GLOB_DAT,
                                 kCall = R_AARCH64_JUMP_SLOT;
#endif

  template <class F>
  void for_each_text(ElfW(Sxword) tag, F f) const {
    if (!strings_ || !dynamic_) return;
    for (const ElfW(Dyn)* entry = dynamic_; entry->d_tag != DT_NULL; ++entry)
      if (entry->d_tag == tag) f(strings_ + entry->d_un.d_val);
  }

  void read(const ElfW(Dyn) & entry) {
    const auto is = [&](ElfW(Sxword) tag) { return entry.d_tag == tag; };
    // The dynamic linker has added the base to most addresses; those of the kernel's own object lack it.
    const ElfW(Addr) value = entry.d_un.d_val, address = value < base_ ? base_ + value : value;
    const auto point = [&]<class T>(ElfW(Sxword) tag, T*& to) {
      if (is(tag)) to = reinterpret_cast<T*>(address);
    };
    point(DT_SYMTAB, symbols_);
    point(DT_STRTAB, strings_);
    point(DT_GNU_HASH, gnu_hash_);
    point(DT_HASH, hash_);
    point(DT_VERSYM, versions_);
    point(DT_RELA, relocations_);
    point(DT_JMPREL, calls_);
    if (is(DT_RELASZ)) relocation_bytes_ = value;
    if (is(DT_PLTRELSZ)) call_bytes_ = value;
  }

  // DT_GNU_HASH: buckets, first symbol, words (a power of two) and shift of a Bloom filter; the filter; the
  // buckets; the chains.
  const ElfW(Addr) * bloom() const { return reinterpret_cast<const ElfW(Addr)*>(gnu_hash_ + 4); }
  const std::uint32_t* buckets() const {
    return reinterpret_cast<const std::uint32_t*>(bloom() + gnu_hash_[2]);
  }
  std::uint32_t chain(std::uint32_t i) const { return buckets()[gnu_hash_[0] + i - gnu_hash_[1]]; }

  /// False: the object does not define the name. At a start a thousand names are asked of each object, and
  /// nearly all end here.
  [[gnu::always_inline]] bool passes_filter(std::uint32_t hash) const {
    constexpr unsigned kBits = 8 * sizeof(ElfW(Addr));
    if (gnu_hash_[0] == 0 || gnu_hash_[2] == 0) return false;
    const ElfW(Addr) word = bloom()[hash / kBits & (gnu_hash_[2] - 1)];
    return (word >> (hash % kBits) & word >> ((hash >> gnu_hash_[3]) % kBits) & 1) != 0;
  }

  [[gnu::noinline]] const ElfW(Sym) * found_by_gnu_hash(const SymbolName& name) const {
    std::uint32_t i = buckets()[name.hash % gnu_hash_[0]];
    if (i == 0) return nullptr;
    const ElfW(Sym)* found = nullptr;
    do
      if ((chain(i) | 1) == (name.hash | 1)) found = better(found, i, name.text);
    while (!(chain(i++) & 1));
    return found;
  }

  const ElfW(Sym) * found_by_hash(const char* name) const {
    std::uint32_t h = 0;
    for (const char* c = name; *c; ++c) {
      h = (h << 4) + static_cast<unsigned char>(*c);
      h = (h ^ (h >> 24 & 0xf0)) & 0x0fffffff;
    }
    if (hash_[0] == 0) return nullptr;
    const ElfW(Sym)* found = nullptr;
    for (std::uint32_t i = hash_[2 + h % hash_[0]]; i != 0; i = hash_[2 + hash_[0] + i])
      found = better(found, i, name);
    return found;
  }

  /// The symbol with this index, if it defines the name, and in the default version or as the first.
  const ElfW(Sym) * better(const ElfW(Sym) * found, std::uint32_t i, const char* name) const {
    if (!is_definition(i, name)) return found;
    return found == nullptr || (!is_hidden(i) && is_hidden(found - symbols_)) ? &symbols_[i] : found;
  }
  /// Whether references without a version pass the symbol by.
  bool is_hidden(std::ptrdiff_t i) const { return versions_ != nullptr && (versions_[i] & 0x8000) != 0; }

  bool is_definition(std::uint32_t i, const char* name) const {
    return symbols_[i].st_shndx != SHN_UNDEF && symbols_[i].st_value != 0 &&
           is_same(name_of(symbols_[i]), name);
  }

  template <class F>
  void for_each_slot_of(const ElfW(Rela) * first, std::size_t bytes, F f) const {
    for (const ElfW(Rela)* r = first; r && r < first + bytes / sizeof *r; ++r) {
      const std::uint32_t type = static_cast<std::uint32_t>(ELF64_R_TYPE(r->r_info));
      if (type == kAbsolute || type == kData || type == kCall)
        f(reinterpret_cast<ElfW(Addr)*>(base_ + r->r_offset), static_cast<ElfW(Addr)>(r->r_addend),
          symbols_[ELF64_R_SYM(r->r_info)]);
    }
  }

  ElfW(Addr) base_;
  const ElfW(Dyn) * dynamic_;
  ElfW(Sym) * symbols_ = nullptr;
  const char* strings_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const ElfW(Versym) * versions_ = nullptr;
  const ElfW(Rela) * relocations_ = nullptr;
  const ElfW(Rela) * calls_ = nullptr;
  std::size_t relocation_bytes_ = 0, call_bytes_ = 0;
};

}  // namespace

}  // namespace pinion
