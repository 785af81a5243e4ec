// Definitions of functions in loaded objects, read from the objects' symbol tables: nothing is called that
// another library could replace, and no error is left for dlerror(). Any thread, also before constructors
// have run. Never from hooks (base/loaded_objects.h). The definition that a caller would have met without the
// preload is found by scopes.h.
#pragma once

#include <atomic>

#include "base/range.h"

namespace pinion {

/// The loaded segment that holds `code`; empty: none.
Range segment_around(const void* code);
/// The path of the object that holds `code`: empty for the program, "?" where there is none. The dynamic
/// linker's own text, which stays with the object.
const char* file_around(const void* code);
/// Whether the address lies in a loaded segment of code.
bool is_code(const void* address);

/// The function `name` of the loaded object that holds `code`; null where the object exports none.
void* definition_beside(const void* code, const char* name);

/// The function `name` of the first object, in the order of loading, that exports one. The preload is left
/// out.
enum class Where { anywhere, behind_preload };
void* first_definition(Where where, const char* name);
inline void* definition_behind_preload(const char* name) {
  return first_definition(Where::behind_preload, name);
}
/// A function that is found at its first call, by `find`. Threads may find it at the same time: they find the
/// same. Objects are global: a thread that waits for the guard of a local one may hold the dynamic linker's
/// lock, which finding needs.
template <class Function, void* (*find)(const char*)>
class FoundFunction {
 public:
  explicit constexpr FoundFunction(const char* name) : name_(name) {}
  Function* get() {
    Function* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr)
      found_.store(found = reinterpret_cast<Function*>(find(name_)), std::memory_order_relaxed);
    return found;
  }

 private:
  const char* const name_;
  std::atomic<Function*> found_{nullptr};
};
/// The C library's function `name`, or one that stands before it behind the preload. Where its version is
/// asked for, the C library itself is the program, and nothing stands behind the preload.
void* libc_definition(const char* name);

/// Whether a library that is searched before the preload exports the function. The program itself is left
/// out.
bool is_defined_before_preload(const char* name);

}  // namespace pinion
