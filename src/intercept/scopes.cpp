#include "intercept/scopes.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "base/loaded_objects.h"
#include "intercept/definitions.h"

namespace pinion {

constinit const ElfW(Dyn) * last_object_at_start = nullptr;

namespace {

/// An object of a scope. Valid while the list is locked.
struct Object {
  Address base;
  const ElfW(Dyn) * dynamic;
  SymbolName own_name, file;  ///< either is what others need it by
  std::size_t needed = 0;     ///< where the objects that it needs begin in Scopes

  ElfObject tables() const { return {base, dynamic}; }
  bool is_named(const SymbolName& name) const { return is(own_name, name) || is(file, name); }

 private:
  static bool is(const SymbolName& a, const SymbolName& b) {
    return a.hash == b.hash && a.text != nullptr && is_same(a.text, b.text);
  }
};

SymbolName base_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path)
    if (*path == '/') name = path + 1;
  return SymbolName(name);
}

bool is_preload(const LoadedObject& object) {
  return object.holds(reinterpret_cast<const void*>(&definition_for));
}

/// A name that is looked for.
struct Sought {
  SymbolName name;
  void* function = nullptr;  ///< the first definition behind the preload; null: none
  bool is_global = false;    ///< the definition was there at the start
  bool is_certain = true;    ///< the caller can mean no other

  void meet(void* definition, bool global) {
    if (definition == nullptr) return;
    if (function == nullptr)
      function = definition, is_global = global;
    else
      is_certain = is_global;
  }
};

/// A search on behalf of one caller.
class Search {
 public:
  Search(const void* caller, std::span<Sought> all) : caller_(caller), all_(all) {
    for_each_loaded_object([this](const LoadedObject& object) {
      look_at(object);
      return false;
    });
  }

  const ElfW(Dyn) * caller() const { return caller_object_; }
  std::span<Sought> all() const { return all_; }

  /// The object's definition, where the caller can mean it.
  void* definition_in(const ElfObject& tables, const ElfW(Dyn) * dynamic, const SymbolName& name) const {
    return dynamic != caller_object_ || tables.has_version(name) ? tables.function(name) : nullptr;
  }

 private:
  void look_at(const LoadedObject& object) {
    const ElfW(Dyn)* const dynamic = object.dynamic();
    if (caller_ != nullptr && object.holds(caller_)) caller_object_ = dynamic;
    if (is_preload(object)) {
      is_behind_ = true;
    } else if (is_behind_) {
      const ElfObject tables(object.base(), dynamic);
      for (Sought& one : all_) one.meet(definition_in(tables, dynamic, one.name), !start_has_ended_);
    }
    if (dynamic != nullptr && dynamic == last_object_at_start) start_has_ended_ = true;
  }

  const void* const caller_;
  const std::span<Sought> all_;
  const ElfW(Dyn) * caller_object_ = nullptr;
  bool is_behind_ = false, start_has_ended_ = false;
};

/// The objects behind the preload and their needs. Memory is allocated before the list is locked.
class Scopes {
 public:
  /// Makes the uncertain ones certain that have a definition in the caller's own scopes, the first in their
  /// order. Its scopes are those of the objects that it was loaded with, which precede it in the list, and
  /// its own.
  void settle(const Search& search) {
    bool has_room = false;
    while (!has_room) {
      count();
      objects_.reserve(object_count_);
      needed_.reserve(needed_count_);
      order_.reserve(object_count_);
      for_each_loaded_object([&](const LoadedObject&) {
        has_room = fill();
        if (has_room) settle_in_scopes(search);
        return true;
      });
    }
  }

 private:
  template <class Visit>
  static void for_each_behind(Visit visit) {
    bool is_behind = false;
    for_each_loaded_object([&](const LoadedObject& object) {
      if (is_preload(object))
        is_behind = true;
      else if (is_behind && object.dynamic() != nullptr)
        visit(object);
      return false;
    });
  }

  void count() {
    object_count_ = needed_count_ = 0;
    for_each_behind([this](const LoadedObject& object) {
      ++object_count_;
      object.tables().for_each_needed([this](const char*) { ++needed_count_; });
    });
  }

  /// Whether there was room for all.
  bool fill() {
    objects_.clear();
    needed_.clear();
    bool has_room = true;
    for_each_behind([&](const LoadedObject& object) {
      has_room = has_room && objects_.size() < object_count_;
      if (!has_room) return;
      const char* const own = object.tables().own_name();
      objects_.push_back({object.base(), object.dynamic(), own != nullptr ? SymbolName(own) : SymbolName(),
                          base_name(object.file())});
    });
    for (Object& object : objects_) {
      object.needed = needed_.size();
      object.tables().for_each_needed([&](const char* name) {
        const SymbolName wanted = base_name(name);
        const auto found = std::find_if(objects_.begin(), objects_.end(),
                                        [&](const Object& o) { return o.is_named(wanted); });
        has_room = has_room && needed_.size() < needed_count_;
        if (has_room) needed_.push_back(static_cast<std::size_t>(found - objects_.begin()));
      });
    }
    return has_room;
  }

  void settle_in_scopes(const Search& search) {
    for (std::size_t root = 0; root < objects_.size(); ++root) {
      search_order(root);
      const auto is_caller = [&](std::size_t i) { return objects_[i].dynamic == search.caller(); };
      if (std::none_of(order_.begin(), order_.end(), is_caller)) continue;
      for (const std::size_t i : order_) settle_in(search, objects_[i]);
    }
  }
  static void settle_in(const Search& search, const Object& object) {
    for (Sought& one : search.all()) {
      if (one.is_certain) continue;
      void* const found = search.definition_in(object.tables(), object.dynamic, one.name);
      if (found != nullptr) one.function = found, one.is_certain = true;
    }
  }

  /// The objects of a root's scope: itself and what it needs, the nearest first.
  void search_order(std::size_t root) {
    order_.assign(1, root);
    for (std::size_t at = 0; at < order_.size(); ++at) {
      const std::size_t i = order_[at];
      const std::size_t end = i + 1 < objects_.size() ? objects_[i + 1].needed : needed_.size();
      for (std::size_t n = objects_[i].needed; n < end; ++n) {
        const bool is_new = std::find(order_.begin(), order_.end(), needed_[n]) == order_.end();
        if (needed_[n] < objects_.size() && is_new) order_.push_back(needed_[n]);
      }
    }
  }

  std::size_t object_count_ = 0, needed_count_ = 0;
  std::vector<Object> objects_;
  std::vector<std::size_t> needed_;  ///< numbers of objects; their count: one before the preload
  std::vector<std::size_t> order_;
};

/// Asks the C library itself, which alone knows what was loaded with RTLD_GLOBAL.
void* in_global_scope(const char* name) {
  using Dlsym = void*(void*, const char*);
  using Dlerror = char*();
  auto* const dlsym = reinterpret_cast<Dlsym*>(c_library_function("dlsym"));
  auto* const dlerror = reinterpret_cast<Dlerror*>(c_library_function("dlerror"));
  if (dlsym == nullptr || dlerror == nullptr) return nullptr;
  void* const found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) dlerror();  // the program asked for nothing
  return found;
}

void find(const void* caller, std::span<Sought> all) {
  const Search search(caller, all);
  bool is_done = true;
  for (Sought& one : all) {
    if (one.is_certain) continue;
    void* const found = in_global_scope(one.name.text);
    if (found != nullptr) one.function = found, one.is_certain = true;
    is_done = is_done && one.is_certain;
  }
  if (!is_done && search.caller() != nullptr) Scopes().settle(search);
}

}  // namespace

void* definition_for(const void* caller, const char* name) {
  Sought one{SymbolName(name)};
  find(caller, {&one, 1});
  return one.function;
}

void definitions_for(const void* caller, std::span<const char* const> names, void** found) {
  std::vector<Sought> all;
  for (const char* const name : names) all.push_back({SymbolName(name)});
  find(caller, all);
  for (const Sought& one : all) *found++ = one.function;
}

}  // namespace pinion
