// A shared library that machines may lack: loaded when first asked for, constant once loaded, never unloaded.
// Any thread, outside of hooks.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>

#include "base/error.h"

namespace pinion {

/// The library's functions, or why there are none.
template <class Functions>
struct OptionalLibrary {
  Functions functions;
  Error error;
};

/// Looks functions up by their names.
class SymbolFinder {
 public:
  explicit SymbolFinder(void* library) : library_(library) {}

  template <class Function>
  void find(Function& function, const char* name) {
    find_if_there(function, name);
    if (function == nullptr) missing_ = name;
  }
  /// Null where the library is too old for it.
  template <class Function>
  void find_if_there(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
  }
  /// A name that find() was asked for and the library lacks; empty: none.
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

/// The result of `load`, once a process. Null and its error where there are no functions. A static variable's
/// guard would deadlock: a waiting thread may hold the dynamic linker's lock (in a constructor of a library
/// that is being loaded), which load() needs. A second load has the same result and is discarded.
template <class Functions, OptionalLibrary<Functions> load()>
const Functions* load_once(Error& error) {
  static std::atomic<const OptionalLibrary<Functions>*> known{nullptr};
  const OptionalLibrary<Functions>* loaded = known.load(std::memory_order_acquire);
  if (loaded == nullptr) {
    auto fresh = std::make_unique<const OptionalLibrary<Functions>>(load());
    if (known.compare_exchange_strong(loaded, fresh.get())) loaded = fresh.release();
  }
  error = loaded->error;
  return loaded->error ? nullptr : &loaded->functions;
}

}  // namespace pinion
