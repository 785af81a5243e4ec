// Which build of libpinion this is. Fronts in libraries of their own share its structures and private
// symbols, and a program that links another libpinion brings that one: only with the stamp of its own build
// may a front call anything private (intercept/same_build.h). A constant.
#pragma once

namespace pinion {

/// Weak, for the sake of fronts: a libpinion from before there were stamps has none, and its address is null.
extern const char build_stamp[] __attribute__((weak));

}  // namespace pinion
