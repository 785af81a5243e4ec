// Look-ups by dlsym() and dlvsym() of functions that a front stands before, by whatever handle: a program
// that looks its functions up would otherwise go past the preload. Each front answers for its own names.
//
// Any thread; not from hooks.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinion {

using Dlvsym = void* (*)(void*, const char*, const char*);

/// An answer in two registers.
struct Answer {
  void* function;
  std::uintptr_t is_final;  ///< 0: the C library answers
};
inline constexpr Answer kAsWithoutUs{nullptr, 0};

struct Question {
  void* library;  ///< as dlsym() takes it
  const char* name;
  const char* version;  ///< null for dlsym()
  const void* caller;   ///< the return address
};

/// The C library's own answer, as the preload gets it. `version`: null for none.
void* look_up(void* library, const char* name, const char* version);

namespace verbs {
Answer answer(const Question& question);
}
namespace cuda {
Answer answer(const Question& question);
}

}  // namespace pinion

/// Like pinion_real_dlsym (exports.h). (lookup.S reads it as a pointer.)
extern "C" [[gnu::visibility("hidden")]] constinit std::atomic<pinion::Dlvsym> pinion_real_dlvsym;
