// elfutils' libdw, loaded at the first source line that a report asks for: the command also runs where it is
// not installed.
#pragma once

#include <elfutils/libdwfl.h>

namespace pinion::cli {

/// Its functions, under their own names.
struct Libdw {
#define PINION_LIBDW_FUNCTIONS(F) \
  F(dwarf_attr)                   \
  F(dwarf_attr_integrate)         \
  F(dwarf_diename)                \
  F(dwarf_filesrc)                \
  F(dwarf_formstring)             \
  F(dwarf_formudata)              \
  F(dwarf_getscopes)              \
  F(dwarf_getscopes_die)          \
  F(dwarf_getsrcfiles)            \
  F(dwarf_srclang)                \
  F(dwarf_tag)                    \
  F(dwfl_begin)                   \
  F(dwfl_build_id_find_elf)       \
  F(dwfl_end)                     \
  F(dwfl_lineinfo)                \
  F(dwfl_module_addrdie)          \
  F(dwfl_module_addrname)         \
  F(dwfl_module_build_id)         \
  F(dwfl_module_getelf)           \
  F(dwfl_module_getsrc)           \
  F(dwfl_offline_section_address) \
  F(dwfl_report_begin)            \
  F(dwfl_report_end)              \
  F(dwfl_report_offline)          \
  F(dwfl_standard_find_debuginfo)
#define PINION_LIBDW_POINTER(name) decltype(&::name) name = nullptr;  // NOLINT(bugprone-macro-parentheses)
  PINION_LIBDW_FUNCTIONS(PINION_LIBDW_POINTER)
#undef PINION_LIBDW_POINTER
  bool found = false;
};

/// The library of this machine. Where it is missing, `found` is false, and a line on standard error says so
/// once.
const Libdw& libdw();

}  // namespace pinion::cli
