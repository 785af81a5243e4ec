// The front and the library are one program here.
#include "intercept/same_build.h"

namespace pinion {

bool same_build() { return true; }
bool same_build_or_say_so() { return true; }

}  // namespace pinion
