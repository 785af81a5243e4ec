// Whether the engine keeps registrations beyond their leases in this build. Under ThreadSanitizer it keeps
// none, because the sanitizer's allocator unmaps unseen.
#pragma once

#include <gtest/gtest.h>

namespace pinion::test {

#if defined(__SANITIZE_THREAD__)
constexpr bool kKept = false;
#else
constexpr bool kKept = true;
#endif

}  // namespace pinion::test

#define NEEDS_KEPT_REGISTRATIONS() \
  if (!::pinion::test::kKept) GTEST_SKIP() << "nothing is kept under this sanitizer"
