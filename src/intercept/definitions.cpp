#include "intercept/definitions.h"

#include "base/loaded_objects.h"

namespace pinion {

namespace {

bool is_preload(const LoadedObject& object) {
  return object.holds(reinterpret_cast<const void*>(&definition_beside));
}

}  // namespace

Range segment_around(const void* code) {
  Range found;
  for_each_loaded_object([&](const LoadedObject& object) {
    found = object.segment_around(code);
    return !found.empty();
  });
  return found;
}

const char* file_around(const void* code) {
  const char* found = "?";
  for_each_loaded_object([&](const LoadedObject& object) {
    const bool holds = object.holds(code);
    if (holds) found = object.file();
    return holds;
  });
  return found;
}

bool is_code(const void* address) {
  return for_each_loaded_object([&](const LoadedObject& object) { return object.holds_code(address); });
}

void* definition_beside(const void* code, const char* name) {
  void* found = nullptr;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (!object.holds(code)) return false;
    found = object.tables().function(SymbolName(name));
    return true;
  });
  return found;
}

bool is_defined_before_preload(const char* name) {
  const SymbolName wanted(name);
  bool found = false, is_program = true;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (is_preload(object)) return true;
    found = !is_program && object.tables().function(wanted) != nullptr;
    is_program = false;
    return found;
  });
  return found;
}

void* first_definition(Where where, const char* name) {
  const SymbolName wanted(name);
  void* found = nullptr;
  bool reached = where == Where::anywhere;
  for_each_loaded_object([&](const LoadedObject& object) {
    if (is_preload(object)) {
      reached = true;
      return false;
    }
    if (reached) found = object.tables().function(wanted);
    return found != nullptr;
  });
  return found;
}

void* libc_definition(const char* name) {
  void* const found = first_definition(Where::behind_preload, name);
  return found ? found : first_definition(Where::anywhere, name);
}

}  // namespace pinion
