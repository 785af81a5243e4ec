// Pinion's own calls of dlopen(). A child that is forked in the middle of one would find the dynamic linker
// half changed (glibc's file cache, for one, is unmapped and still looked at), so forks wait until none is
// under way, and new ones until the fork is over: each for a second at most, as a library's constructor may
// need what the forking thread holds.
//
// Any thread; never from hooks. A library's constructor may fork, or load another.
#pragma once

namespace pinion {

/// dlopen() with these flags. With RTLD_NOLOAD, a library that is not there leaves no error for dlerror().
void* load_library(const char* file, int flags);

}  // namespace pinion
