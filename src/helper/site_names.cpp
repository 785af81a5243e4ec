#include "helper/site_names.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sys/auxv.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/loaded_objects.h"

namespace pinion {

namespace {

/// A return address may lie behind its function's last byte: the lookup uses the call before it.
std::uint64_t call_before(std::uint64_t return_address) { return return_address - 1; }

Dl_info look_up(std::uint64_t address) {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<void*>(address), &info) ? info : Dl_info{};
}

const void* base_of(const void* address) {
  return look_up(reinterpret_cast<std::uintptr_t>(address)).dli_fbase;
}

/// Whether a module has MPI's bindings for Fortran: those of mpif.h and `use mpi`, or of `use mpi_f08` as
/// Open MPI or MPICH names them.
bool has_fortran_bindings(const void* base) {
  if (base == base_of(reinterpret_cast<const void*>(::getauxval(AT_ENTRY))))
    return false;  // the program itself
  for (const char* name : {"mpi_send_", "mpi_send_f08_", "mpi_send_f08ts_"}) {
    const void* const binding = ::dlsym(RTLD_DEFAULT, name);
    if (binding && base_of(binding) == base) return true;
  }
  return false;
}

/// Whether the call was made by MPI, or by a tool that stands before it, on behalf of the program.
bool is_of_mpi(std::uint64_t address) {
  const Dl_info info = look_up(address);
  const std::string_view function = info.dli_sname ? info.dli_sname : "";
  return function.starts_with("MPI_") || function.starts_with("PMPI_") ||
         (info.dli_fbase && has_fortran_bindings(info.dli_fbase));
}

std::uint32_t first_of_program(const runlog::SiteEntry& site) {
  std::uint32_t first = 0;
  while (first < site.frame_count && is_of_mpi(call_before(site.frames[first]))) ++first;
  return first < site.frame_count ? first : 0;
}

void write_frame(char (&text)[160], std::uint64_t address) {
  const Dl_info info = look_up(address);
  if (!info.dli_fname) {
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
    return;
  }
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* module = slash ? slash + 1 : info.dli_fname;
  const auto offset_from = [&](const void* base) {
    return static_cast<unsigned long long>(address - reinterpret_cast<std::uintptr_t>(base));
  };
  if (info.dli_sname && info.dli_saddr) {
    std::snprintf(text, sizeof text, "%s+0x%llx (%s)", info.dli_sname, offset_from(info.dli_saddr), module);
  } else {
    std::snprintf(text, sizeof text, "%s+0x%llx", module, offset_from(info.dli_fbase));
  }
}

template <std::size_t size>
void copy_path(char (&out)[size], const char* name) {
  char path[PATH_MAX];
  // The program itself has no name here. A file that is gone keeps the name that it was loaded by.
  const char* const found = ::realpath(*name ? name : "/proc/self/exe", path);
  std::snprintf(out, size, "%s", found ? found : name);
}

void copy_build_id(runlog::ModuleEntry& module, const dl_phdr_info& info, const ElfW(Phdr) & segment) {
  const auto* at = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
  const char* const end = at + segment.p_memsz;
  const auto padded = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
  while (at + sizeof(ElfW(Nhdr)) <= end) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const char* const name = at + sizeof note;
    const char* const content = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      module.build_id_bytes = std::min<std::uint32_t>(note.n_descsz, runlog::kMostBuildIdBytes);
      std::memcpy(module.build_id, content, module.build_id_bytes);
      return;
    }
    at = content + padded(note.n_descsz);
  }
}

runlog::ModuleEntry module_of(const dl_phdr_info& info) {
  runlog::ModuleEntry module{};
  module.bias = info.dlpi_addr;
  module.begin = UINT64_MAX;
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type == PT_NOTE && module.build_id_bytes == 0) copy_build_id(module, info, segment);
    if (segment.p_type != PT_LOAD) continue;
    module.begin = std::min<std::uint64_t>(module.begin, info.dlpi_addr + segment.p_vaddr);
    module.end = std::max<std::uint64_t>(module.end, info.dlpi_addr + segment.p_vaddr + segment.p_memsz);
  }
  return module;
}

}  // namespace

std::vector<runlog::ModuleEntry> modules_with(const std::vector<std::uint64_t>& addresses) {
  struct Search {
    const std::vector<std::uint64_t>& addresses;
    std::vector<runlog::ModuleEntry> found;
  } search{addresses, {}};
  // Visits allocate nothing. Who loads more meanwhile is left out.
  std::size_t objects = 0;
  for_each_loaded_object([&](const LoadedObject&) { return ++objects, false; });
  search.found.reserve(objects);
  own_dl_iterate_phdr()(
      [](dl_phdr_info* info, std::size_t, void* data) {
        Search& search = *static_cast<Search*>(data);
        runlog::ModuleEntry module = module_of(*info);
        const auto inside = [&](std::uint64_t a) { return a >= module.begin && a < module.end; };
        if (std::none_of(search.addresses.begin(), search.addresses.end(), inside)) return 0;
        if (search.found.size() == search.found.capacity()) return 1;
        copy_path(module.path, info->dlpi_name);
        search.found.push_back(module);
        return 0;
      },
      &search);
  return std::move(search.found);
}

void name_site(runlog::SiteEntry& site) {
  std::size_t used = 0;
  site.name[0] = 0;
  const std::uint32_t first = site.first_frame = first_of_program(site);
  for (std::uint32_t i = first; i < std::min(site.frame_count, first + kNamedFrames); ++i) {
    char frame[160];
    write_frame(frame, call_before(site.frames[i]));
    const int n =
        std::snprintf(site.name + used, sizeof site.name - used, "%s%s", i > first ? " < " : "", frame);
    if (n < 0 || used + static_cast<std::size_t>(n) >= sizeof site.name) return;
    used += static_cast<std::size_t>(n);
  }
}

}  // namespace pinion
