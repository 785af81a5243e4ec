// The objects that are loaded, as the dynamic linker lists them. They are read by the C library's own
// dl_iterate_phdr, found in its table: programs and sanitizers define functions of that name, some of which
// ask dlsym(), and so the preload, before they can answer. The list is read under the dynamic linker's short
// lock, which is not the one that is held while constructors run.
//
// Any thread, also before constructors have run. Never from hooks, and visits allocate nothing: the lock is
// taken inside of allocators' calls, too.
#pragma once

#include <elf.h>
#include <link.h>

#include <string_view>

#include "base/elf_object.h"
#include "base/range.h"

namespace pinion {

/// Stays valid during the visit.
class LoadedObject {
 public:
  explicit LoadedObject(const dl_phdr_info& info) : info_(&info) {}

  /// Its path; empty for the program itself.
  const char* file() const { return info_->dlpi_name != nullptr ? info_->dlpi_name : ""; }
  /// Whether its file's own name, without the directories, begins so.
  bool begins_with(std::string_view name) const {
    const std::string_view path = file();
    return path.substr(path.rfind('/') + 1).starts_with(name);
  }
  Address base() const { return info_->dlpi_addr; }

  /// Null where it has none.
  const ElfW(Dyn) * dynamic() const {
    for (const ElfW(Phdr) & part : *this)
      if (part.p_type == PT_DYNAMIC) return reinterpret_cast<const ElfW(Dyn)*>(base() + part.p_vaddr);
    return nullptr;
  }
  ElfObject tables() const { return {base(), dynamic()}; }

  /// The segment of memory that holds the address; empty: none.
  Range segment_around(const void* address) const {
    for (const ElfW(Phdr) & part : *this)
      if (part.p_type == PT_LOAD && range_of(part).contains(Range::of(address, 1))) return range_of(part);
    return {};
  }
  bool holds(const void* address) const { return !segment_around(address).empty(); }
  bool holds_code(const void* address) const {
    for (const ElfW(Phdr) & part : *this)
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 &&
          range_of(part).contains(Range::of(address, 1)))
        return true;
    return false;
  }

  /// The parts of the object.
  const ElfW(Phdr) * begin() const { return info_->dlpi_phdr; }
  const ElfW(Phdr) * end() const { return info_->dlpi_phdr + info_->dlpi_phnum; }

 private:
  Range range_of(const ElfW(Phdr) & part) const {
    return {base() + part.p_vaddr, base() + part.p_vaddr + part.p_memsz};
  }

  const dl_phdr_info* info_;
};

using IterateObjects = int(int (*)(dl_phdr_info*, std::size_t, void*), void*);
/// The C library's own dl_iterate_phdr.
IterateObjects* own_dl_iterate_phdr();

/// Calls `visit(object)` for each loaded object, in the order of loading, until it returns true. Whether it
/// did.
template <class Visit>
bool for_each_loaded_object(Visit visit) {
  return own_dl_iterate_phdr()([](dl_phdr_info* info, std::size_t,
                                  void* v) { return (*static_cast<Visit*>(v))(LoadedObject(*info)) ? 1 : 0; },
                               &visit) != 0;
}

/// The C library's own function, whatever else the program would find; null where it has none.
void* c_library_function(const char* name);

/// The size of the function, by the symbol of this name that the function's object has for it; 0: it has
/// none.
std::size_t function_bytes(const void* function, const char* name);

}  // namespace pinion
