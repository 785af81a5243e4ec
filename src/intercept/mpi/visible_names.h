// Which of the preload's names a program can find: exactly those that its MPI has. Programs test weak
// references and dlsym() to learn which functions exist, under MPI and elsewhere.
//
// The preload's symbol table is written while the preload is relocated, before any constructor and before the
// program's own references are bound:
//  - A program that is linked with MPI: names that libraries leave undefined leave the table.
//  - Any other: each name becomes an indirect function. The dynamic linker resolves it at each binding:
//    to the entry where a loaded library defines the name by then, to null elsewhere. Indirect functions
//    from the beginning would fail: the dynamic linker rejects those bound before the preload's relocation.
// Libraries may have bound their references earlier: their weak ones to missing names are set to null.
#pragma once

#include <cstddef>

namespace pinion::mpi {

/// The number of a name in the table; kEntryCount for other names.
std::size_t entry_index(const char* name);
/// Whether all loaded libraries lack a definition of this name of the table. Any thread; takes the dynamic
/// linker's lock.
bool is_missing(std::size_t entry);

}  // namespace pinion::mpi
