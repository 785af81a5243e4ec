// Whether the registrations of a library above the verbs front lead into the front. Asked of a process of its
// own, which is preloaded as the program will be: it loads the library's parts that register memory, and
// reads from their relocations where each call of a registration function leads. A part with a libibverbs of
// its own inside, or none of these calls, proves nothing.
#pragma once

#include <string>
#include <vector>

namespace pinion::cli {

enum class FrontReach {
  reached,    ///< each of its registration calls leads into the front
  elsewhere,  ///< one leads elsewhere
  unknown     ///< there is none to be seen, or no part that registers with libibverbs
};

/// In a part's name, between a library and the pattern of files beside it.
constexpr const char* kBeside = "//";

/// Looks at the library's parts that exist: names as dlopen() takes them, patterns of files, or
/// `libuct.so.0//ucx/libuct_ib*.so.0`.
FrontReach front_reach(const std::vector<std::string>& parts);

/// The process of its own: `pinion --front-reach PRELOAD PART...`; its exit status is a FrontReach.
constexpr const char* kFrontReachFlag = "--front-reach";
int answer_front_reach(const std::vector<std::string>& arguments);

}  // namespace pinion::cli
