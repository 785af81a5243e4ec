// Looking functions up, and what errors are called.
#include "support/made_up_cuda/entry.h"
#include "support/made_up_cuda/names.h"

using namespace pinion::made_up_cuda;  // NOLINT(google-build-using-namespace): the exports are C

extern "C" {

Result cuGetProcAddress(const char* name, void** function, int version, std::uint64_t flags) {
  MADE_UP_CALL(Need::kNothing);
  if (!name || !function) return kInvalidValue;
  return look_up(name, version, flags, function) == kFound ? kSuccess : kNotFound;
}

Result cuGetProcAddress_v2(const char* name, void** function, int version, std::uint64_t flags, int* status) {
  MADE_UP_CALL(Need::kNothing);
  if (!name || !function) return kInvalidValue;
  const NameStatus found = look_up(name, version, flags, function);
  if (status) *status = found;
  return kSuccess;
}

Result cuGetErrorName(Result error, const char** name) {
  MADE_UP_CALL(Need::kNothing);
  if (name) *name = error == kSuccess ? "CUDA_SUCCESS" : "CUDA_ERROR_MADE_UP";
  return kSuccess;
}

Result cuGetErrorString(Result error, const char** text) {
  MADE_UP_CALL(Need::kNothing);
  if (text) *text = error == kSuccess ? "no error" : "an error of the made-up driver";
  return kSuccess;
}

Result cuGetExportTable(const void** table, const void*) {
  MADE_UP_CALL(Need::kNothing);
  if (table) *table = nullptr;
  return kNotFound;
}

}  // extern "C"
