// Which of the preload's names a program can find: exactly those that its MPI has. Programs test weak
// references and dlsym() to learn which functions there are, with MPI or without.
//
// The preload's symbol table is settled while the preload is relocated, before any constructor and before the
// program's own references are bound:
//  - A program that is linked with MPI: names that no library defines leave the table.
//  - Any other: each name becomes an indirect function, which the dynamic linker resolves at each binding to
//    the entry where a loaded library defines the name by then, and to null elsewhere. (They cannot be
//    indirect from the beginning: the dynamic linker complains about each that is bound before the preload is
//    relocated.)
// Libraries whose references were bound earlier still have their weak ones to missing names set to null.
#pragma once

#include <cstddef>

namespace pinion::mpi {

/// The number of a name in the table; kEntryCount where it is not there.
std::size_t entry_index(const char* name);
/// Whether no loaded library defines this name of the table. Any thread; takes the dynamic linker's lock.
bool is_missing(std::size_t entry);

}  // namespace pinion::mpi
