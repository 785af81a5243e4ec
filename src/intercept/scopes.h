// The definition of a function that its caller would meet if the preload were not there. Several libraries
// may have it: two copies of libibverbs, one of them loaded for its user alone. The dynamic linker searches
// the global scope first: what was there at the start, and what was loaded with RTLD_GLOBAL since; then the
// libraries that came with the caller's, each with those that it needs (DT_NEEDED). Of the global scope only
// what lies behind the preload counts: a library before it would lead back here. Versions are passed over:
// each object stands for its default one.
//
// Owns the mark of where the start's objects end. Any thread; not from hooks (base/loaded_objects.h).
#pragma once

#include <link.h>

#include <span>

namespace pinion {

/// The function `name` that the object which holds the code `caller` would have bound to. Where its scopes
/// lack one, the first that any library behind the preload has; null: none. `caller` null: of an unknown
/// object.
///
/// Code of an object that defines the name itself without a version is a wrapper around the next one: it
/// does not get its own. That of a library with versions calls itself.
void* definition_for(const void* caller, const char* name);
/// Finds many names in one pass over the objects: found[i] is that of names[i].
void definitions_for(const void* caller, std::span<const char* const> names, void** found);

/// The global scope's definition behind the preload, or else the first one of any library behind it.
inline void* find_next_definition(const char* name) { return definition_for(nullptr, name); }

/// The last object that was loaded when the preload was relocated, by its dynamic section. Written by
/// visible_names.cpp; null: not yet.
extern const ElfW(Dyn) * last_object_at_start;

}  // namespace pinion
