#include "intercept/same_build.h"

#include <dlfcn.h>
#include <pinion/pinion.h>

#include <cstdio>
#include <cstring>

#include "process/build_stamp.h"

namespace pinion {

namespace {

constexpr char kOwnStamp[] =
#include "build_stamp.inc"
    ;

const char* file_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) && info.dli_fname ? info.dli_fname : "?";
}

bool compare() {
  const char* const stamp = build_stamp;
  return stamp != nullptr && std::strcmp(stamp, kOwnStamp) == 0;
}

bool say_so() {
  std::fprintf(
      stderr,
      "pinion: %s is not of the same build as %s, which this program has: Pinion's preload stays off\n",
      file_of(kOwnStamp), file_of(reinterpret_cast<const void*>(&pinion_start)));
  return true;
}

}  // namespace

bool same_build() {
  static const bool same = compare();
  return same;
}

bool same_build_or_say_so() {
  if (same_build()) return true;
  static const bool said = say_so();
  return !said;
}

}  // namespace pinion
