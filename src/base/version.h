// The version that this build is of, as one string. The public header alone states it; CMake reads it there.
// Pure; any thread.
#pragma once

#include "pinion/pinion.h"

#define PINION_TEXT_OF(number) #number
#define PINION_TEXT(number) PINION_TEXT_OF(number)
#define PINION_VERSION              \
  PINION_TEXT(PINION_VERSION_MAJOR) \
  "." PINION_TEXT(PINION_VERSION_MINOR) "." PINION_TEXT(PINION_VERSION_PATCH)
