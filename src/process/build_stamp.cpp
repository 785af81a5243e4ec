#include "process/build_stamp.h"

namespace pinion {

const char build_stamp[] =
#include "build_stamp.inc"
    ;

}  // namespace pinion
