// Which of the preload's names a program can find: exactly those that its MPI and its libcuda have. Programs
// test weak references and dlsym() to learn which functions exist, with these libraries and without.
//
// The preload's symbol table is written while the preload is relocated, before any constructor and before the
// program's own references are bound:
//  - A program that is linked with the library: names that libraries leave undefined leave the table. For
//    libcuda that holds only if all names are there: a library that stands before it may have some.
//  - Any other: each name becomes an indirect function. The dynamic linker resolves it at each binding:
//    to the entry where a loaded library defines the name by then, to null elsewhere. Indirect functions
//    from the beginning would fail: the dynamic linker rejects those bound before the preload's relocation.
// Libraries may have bound their references earlier: their weak ones to missing names are set to null.
//
// A library that loads libcuda by itself may keep its functions in variables of their names. Such a name
// leads to the variable, as it would without us.
//
// At the same moment the functions behind dlsym and dlvsym are found (exports.h), and the end of the start's
// objects is noted (scopes.h). Where PINION says `off`, all names but chroot leave the table.
#pragma once

namespace pinion {

/// The libraries whose names the preload shows. The names of each lie in one order everywhere.
enum class NamesOf { mpi, cuda };

/// Whether all loaded libraries lack a definition of this one of the names. Any thread; takes the dynamic
/// linker's lock.
bool is_missing(NamesOf library, const char* name);

}  // namespace pinion
