#include "intercept/cuda/driver.h"

#include <dlfcn.h>

#include <atomic>
#include <memory>
#include <string_view>

#include "base/loaded_objects.h"
#include "base/own_loading.h"
#include "base/warning.h"
#include "intercept/definitions.h"

namespace pinion::cuda {

namespace {

/// Null until the table is complete; then never freed. No lock: a thread that holds the dynamic linker's lock
/// may come here, and the search takes that lock.
constinit std::atomic<const Driver*> g_complete{nullptr};
constinit const Driver g_none{};

struct Library {
  std::string_view file;       ///< the dynamic linker's own text, which stays with the library
  const void* code = nullptr;  ///< an address inside; null: it is not loaded
};

/// Reads the list of loaded objects: a dlopen() that fails would leave an error for the program's dlerror().
Library loaded_libcuda() {
  Library found;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.begins_with("libcuda.so")) return false;
    for (const ElfW(Phdr) & part : object) {
      if (part.p_type != PT_LOAD) continue;
      found = {object.file(), reinterpret_cast<const void*>(object.base() + part.p_vaddr)};
      return true;
    }
    return false;
  });
  return found;
}

}  // namespace

bool has_driver() {
  if (g_complete.load(std::memory_order_acquire) != nullptr) return true;
  const Library library = loaded_libcuda();
  if (library.code == nullptr) return false;
  auto filled = std::make_unique<Driver>();
  const char* const missing =
      fill(*filled, [&](const char* symbol) { return definition_beside(library.code, symbol); });
  if (missing != nullptr) {
    static constinit std::atomic<bool> said{false};
    if (!said.exchange(true)) warn("%s lacks %s: GPU copies stay as they are", library.file.data(), missing);
    return false;
  }
  // It stays loaded: the wrappers lead into it.
  static_cast<void>(load_library(library.file.data(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE));
  const Driver* none = nullptr;
  if (g_complete.compare_exchange_strong(none, filled.get(), std::memory_order_acq_rel))
    static_cast<void>(filled.release());
  return true;
}

const Driver& driver() {
  const Driver* const complete = g_complete.load(std::memory_order_acquire);
  return complete != nullptr ? *complete : g_none;
}

}  // namespace pinion::cuda
