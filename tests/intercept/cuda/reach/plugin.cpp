// A plugin that is linked with libcuda, as a Python extension may be.
#include <cstddef>
#include <iterator>

#include "intercept/cuda/reach/table.h"

extern "C" const reach::Name* reach_names(std::size_t* count) {
  *count = std::size(reach::kNames);
  return reach::kNames;
}
